"""What a run extracts, as the control plane froze it."""

import re
from dataclasses import dataclass

from .failures import Failure

SITES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
DTYPES = ("bf16", "fp16", "fp32", "int8")
FORMATS = ("safetensors", "safetensors.zst", "pkl.gz")


@dataclass(frozen=True)
class RecordSpec:
    """How a line becomes a prompt; see records/."""

    field: str | None = None
    template: str | None = None
    encoder: str | None = None
    prompt_version: str = "output-from-examples-v0"
    predictions_per_task: int = 1
    add_generation_prompt: bool = False


@dataclass(frozen=True)
class Spec:
    model: str
    revision: str | None
    layers: str | tuple[int, ...]  # "all", "0-23", or the numbers themselves
    sites: tuple[str, ...]  # in the order of SITES
    tokens: str | tuple[int, ...]  # "all", "last", "mean", a slice such as "0:16" or "-8:", or positions
    exclude_special: bool
    dtype: str  # as stored
    compute_dtype: str  # of the weights and the computation: bf16 or fp32
    format: str
    shard_size_bytes: int
    max_seq_length: int
    over_long: str
    record: RecordSpec
    keep: tuple[str, ...]
    seed: int


def parse_spec(raw: dict) -> Spec:
    """Takes the frozen spec; keys the worker does not use (pool, priority) are ignored.

    Raises Failure("model") naming every value that this worker cannot honour.
    """
    given = {"sites": ["resid_post"], "tokens": "all", "exclude_special": False, "keep": [], "seed": 42} | raw
    record = given.get("record") or {}
    allowed = {"dtype": DTYPES, "format": FORMATS, "over_long": ("reject", "truncate")}
    problems = [
        f"{key} is {given.get(key)!r}, this worker knows {', '.join(values)}"
        for key, values in allowed.items()
        if given.get(key) not in values
    ]
    problems += [f"sites has {site!r}, this worker knows {', '.join(SITES)}" for site in given["sites"] if site not in SITES]
    unknown = sorted(set(record) - set(RecordSpec.__dataclass_fields__))
    problems += [f"record.{key} is unknown to this worker" for key in unknown]
    if not isinstance(given.get("model"), str) or not given["model"]:
        problems.append("model is missing")
    tokens = given["tokens"] if isinstance(given["tokens"], str) else tuple(given["tokens"])
    if isinstance(tokens, str) and tokens not in ("all", "last", "mean") and not is_slice(tokens):
        problems.append(f"tokens is {tokens!r}, this worker knows all, last, mean, a slice such as 0:16, and positions")
    if given.get("format") == "pkl.gz" and (given.get("dtype") not in ("fp16", "fp32") or len(given["sites"]) > 1):
        problems.append("pkl.gz holds one site in fp16 or fp32; ask for safetensors")
    if problems:
        raise Failure("model", f"Failed to read the spec: {'; '.join(problems)}")
    layers = given["layers"]
    return Spec(
        model=given["model"],
        revision=given.get("revision"),
        layers=layers if isinstance(layers, str) else tuple(layers),
        sites=tuple(site for site in SITES if site in given["sites"]),
        tokens=tokens,
        exclude_special=bool(given["exclude_special"]),
        dtype=given["dtype"],
        compute_dtype=given.get("compute_dtype") or ("fp32" if given["dtype"] == "fp32" else "bf16"),
        format=given["format"],
        shard_size_bytes=int(given["shard_size_gb"] * 1_000_000_000),
        max_seq_length=int(given["max_seq_length"]),
        over_long=given["over_long"],
        record=RecordSpec(**{key: value for key, value in record.items() if value is not None}),
        keep=tuple(given["keep"]),
        seed=int(given["seed"]),
    )


def is_slice(text: str) -> bool:
    """START:STOP or START:STOP:STEP as Python writes it, each part optional, STEP positive."""
    return re.fullmatch(r"(-?\d{1,6})?:(-?\d{1,6})?(:[1-9]\d{0,5})?", text) is not None


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
