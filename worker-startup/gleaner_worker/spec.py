"""What a run extracts, as the control plane froze it."""

from dataclasses import dataclass

from .failures import Failure


@dataclass(frozen=True)
class Spec:
    model: str
    revision: str | None
    layers: str | tuple[int, ...]  # "all", "0-23", or the numbers themselves
    dtype: str  # of the weights, the computation and the stored values
    format: str
    shard_size_bytes: int
    max_seq_length: int
    over_long: str
    record_field: str | None

    @property
    def stored_dtype(self) -> str:
        """pkl.gz must load with numpy alone, which has no bf16."""
        return "fp32" if self.format == "pkl.gz" else self.dtype


def parse_spec(raw: dict) -> Spec:
    """Takes the frozen spec; keys the worker does not use (pool, priority, seed) are ignored.

    Raises Failure("model") naming every value that this worker cannot honour.
    """
    allowed = {
        "sites": [["resid_post"]],
        "tokens": ["all"],
        "dtype": ["bf16", "fp32"],
        "format": ["safetensors", "pkl.gz"],
        "over_long": ["reject", "truncate"],
    }
    problems = [
        f"{key} is {raw.get(key)!r}, this worker knows {' and '.join(map(repr, values))}"
        for key, values in allowed.items()
        if raw.get(key) not in values
    ]
    if not isinstance(raw.get("model"), str) or not raw["model"]:
        problems.append("model is missing")
    if problems:
        raise Failure("model", f"Failed to read the spec: {'; '.join(problems)}")
    layers = raw["layers"]
    return Spec(
        model=raw["model"],
        revision=raw.get("revision"),
        layers=layers if isinstance(layers, str) else tuple(layers),
        dtype=raw["dtype"],
        format=raw["format"],
        shard_size_bytes=int(raw["shard_size_gb"] * 1_000_000_000),
        max_seq_length=int(raw["max_seq_length"]),
        over_long=raw["over_long"],
        record_field=(raw.get("record") or {}).get("field"),
    )


def resolve_layers(spec: Spec, num_layers: int) -> tuple[int, ...]:
    """The layers to store, ascending, without repeats; raises Failure("model") when the model lacks one."""
    if spec.layers == "all":
        wanted = set(range(num_layers))
    elif isinstance(spec.layers, str):
        first, _, last = spec.layers.partition("-")
        wanted = set(range(int(first), int(last) + 1))
    else:
        wanted = set(spec.layers)
    absent = sorted(layer for layer in wanted if not 0 <= layer < num_layers)
    if absent or not wanted:
        raise Failure(
            "model",
            f"Failed to choose layers {spec.layers!r} of {spec.model}: it has layers 0 to {num_layers - 1}; "
            "correct `layers` in run.json",
        )
    return tuple(sorted(wanted))
