"""Opening a stored shard and saying what is wrong inside it, with one layer in memory where the format allows."""

from dataclasses import dataclass, field

import numpy as np
from safetensors import SafetensorError, safe_open

from .safe_pickle import Unsafe, load_shard
from ..model.weights import DTYPES

_SAFETENSORS_DTYPES = {"bf16": "BF16", "fp32": "F32"}
_ROWS_AT_ONCE = 65_536


@dataclass
class ShardContent:
    """What the shard says of its samples; `problems` are phrases that complete "<object> …"."""

    sample_idx: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    token_ids: list[np.ndarray] | None = None  # per sample; a pkl.gz has none
    previews: list[str] | None = None
    problems: list[str] = field(default_factory=list)


def read_shard(path: str, metadata: dict[str, str], layers: tuple[int, ...], d_model: int, dtype: str) -> ShardContent:
    if metadata.get("format") == "pkl.gz":
        return _read_pickle(path, metadata, layers, d_model)
    return _read_safetensors(path, metadata, layers, d_model, dtype)


def _read_safetensors(
    path: str, metadata: dict[str, str], layers: tuple[int, ...], d_model: int, dtype: str
) -> ShardContent:
    content = ShardContent()
    try:
        with safe_open(path, framework="numpy") as file:
            inside = file.metadata() or {}
            content.problems += [
                f"says {key} {inside[key]} inside and {metadata.get(key)} outside"
                for key in sorted(inside)
                if inside[key] != metadata.get(key)
            ]
            tokens, samples = int(metadata["tokens"]), int(metadata["samples"])
            expected = {f"resid_post.{layer}": (_SAFETENSORS_DTYPES[dtype], [tokens, d_model]) for layer in layers}
            expected |= {
                "token_ids": ("I32", [tokens]),
                "sample_offsets": ("I64", [samples + 1]),
                "sample_idx": ("I64", [samples]),
            }
            found = {name: (file.get_slice(name).get_dtype(), file.get_slice(name).get_shape()) for name in file.keys()}
            content.problems += _differences(expected, found)
            if content.problems:
                return content
            content.problems += [
                f"has values in layer {layer} that are not finite"
                for layer in layers
                if not _finite(file, layer, tokens)
            ]
            offsets = file.get_tensor("sample_offsets")
            if offsets[0] != 0 or offsets[-1] != tokens or (np.diff(offsets) < 1).any():
                content.problems.append("has sample_offsets that do not divide its tokens")
                return content
            content.sample_idx = file.get_tensor("sample_idx").tolist()
            content.lengths = np.diff(offsets).tolist()
            content.token_ids = np.split(file.get_tensor("token_ids"), offsets[1:-1]) if samples else []
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        content.problems.append(f"cannot be read: {error}")
    return content


def _differences(expected: dict, found: dict) -> list[str]:
    problems = [f"lacks {name}" for name in expected if name not in found]
    problems += [f"has {name}, which does not belong there" for name in found if name not in expected]
    return problems + [
        f"has {name} as {found[name][0]} {found[name][1]}, not {value[0]} {value[1]}"
        for name, value in expected.items()
        if name in found and (found[name][0], list(found[name][1])) != value
    ]


def _finite(file, layer: int, tokens: int) -> bool:
    rows = file.get_slice(f"resid_post.{layer}")
    return all(
        _is_finite(rows[begin : min(begin + _ROWS_AT_ONCE, tokens)]) for begin in range(0, tokens, _ROWS_AT_ONCE)
    )


def _is_finite(values: np.ndarray) -> bool:
    if values.dtype == DTYPES["bf16"]:
        # All exponent bits set is infinity or NaN; this is many times quicker than asking ml_dtypes.
        return not ((values.view(np.uint16) & 0x7F80) == 0x7F80).any()
    return bool(np.isfinite(values).all())


def _read_pickle(path: str, metadata: dict[str, str], layers: tuple[int, ...], d_model: int) -> ShardContent:
    content = ShardContent(previews=[])
    tokens, samples = int(metadata["tokens"]), int(metadata["samples"])
    try:
        data = load_shard(path, len(layers) * (tokens * d_model * 4 + samples * 4096) + 65_536)
    except Unsafe as error:
        content.problems.append(f"is not a pickle that can be trusted: {error}")
        return content
    if not isinstance(data, dict) or list(data) != list(layers):
        content.problems.append(f"does not hold exactly the layers {list(layers)}")
        return content
    for layer, entries in data.items():
        problem = _check_entries(entries, d_model)
        if problem:
            content.problems.append(f"has a wrong layer {layer}: {problem}")
            return content
        idx, lengths = [e["sample_idx"] for e in entries], [e["shape"][0] for e in entries]
        if layer != layers[0] and (idx, lengths) != (content.sample_idx, content.lengths):
            content.problems.append(f"has other samples in layer {layer} than in layer {layers[0]}")
            return content
        content.sample_idx, content.lengths = idx, lengths
        content.previews = [e["text_preview"] for e in entries]
    if len(content.sample_idx) != samples or sum(content.lengths) != tokens:
        content.problems.append(
            f"holds {len(content.sample_idx)} samples and {sum(content.lengths)} tokens, "
            f"its metadata says {samples} and {tokens}"
        )
    return content


def _check_entries(entries: object, d_model: int) -> str | None:
    if not isinstance(entries, list):
        return "it is not a list"
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"sample_idx", "activation", "shape", "text_preview"}:
            return "an entry has other fields than sample_idx, activation, shape and text_preview"
        values = entry["activation"]
        if (
            not isinstance(values, np.ndarray)
            or values.dtype != np.float32
            or values.shape != entry["shape"]
            or values.shape[1:] != (d_model,)
        ):
            return f"sample {entry['sample_idx']} is not float32 [tokens, {d_model}]"
        if not isinstance(entry["sample_idx"], int) or not isinstance(entry["text_preview"], str):
            return "an entry has a sample_idx or text_preview of a wrong type"
        if not _is_finite(values):
            return f"sample {entry['sample_idx']} has values that are not finite"
    return None
