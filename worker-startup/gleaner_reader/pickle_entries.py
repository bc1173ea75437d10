"""Checks the plain values of a pickle: a dict from layer to a list of entries, one entry for each sample."""

from .safe_pickle import Taken

_FIELDS = {"sample_idx", "activation", "shape", "text_preview"}
_OPTIONAL = {"positions", "kept"}
# Bytes of a sample beside its values: its other fields, and its kept fields.
_ENTRY_BYTES, _KEPT_BYTES = 4096, 5 << 16


def most_bytes(layers: int, rows: int, row_bytes: int, samples: int, keeps: bool) -> int:
    """The most bytes that the pickle of such a shard may have."""
    entry = _ENTRY_BYTES + (_KEPT_BYTES if keeps else 0)
    return layers * (rows * (row_bytes + 16) + samples * entry) + (1 << 16)


def problem_of(data: object) -> str | None:
    """Describes the first value that no shard has, as a sentence; None for a shard."""
    if not isinstance(data, dict) or not all(type(layer) is int and layer >= 0 for layer in data):
        return "it is not a dict of layers"
    numbers = None
    for layer, entries in data.items():
        if type(entries) is not list or not all(type(entry) is dict for entry in entries):
            return f"its layer {layer} is not a list of dicts"
        if problem := next(filter(None, map(_entry_problem, entries)), None):
            return f"in layer {layer} {problem}"
        found = [entry["sample_idx"] for entry in entries]
        if numbers is not None and found != numbers:
            return f"it has other samples in layer {layer} than in layer {next(iter(data))}"
        numbers = found
    return None


def _entry_problem(entry: dict) -> str | None:
    if not _FIELDS <= set(entry) <= _FIELDS | _OPTIONAL:
        return f"an entry has other fields than {', '.join(sorted(_FIELDS))}"
    if type(entry["sample_idx"]) is not int or not 0 <= entry["sample_idx"] < 1 << 62:
        return "an entry has a sample_idx that is no number"
    if type(entry["shape"]) is not tuple or type(entry["text_preview"]) is not str:
        return f"sample {entry['sample_idx']} has a shape or text_preview of a wrong type"
    if type(entry["activation"]) is not Taken or not entry["activation"].is_made:
        return f"sample {entry['sample_idx']} has an activation that is no array"
    positions = entry.get("positions", [])
    if type(positions) is not list or not all(type(p) is int and 0 <= p < 1 << 31 for p in positions):
        return f"sample {entry['sample_idx']} has positions that are no list of numbers"
    return (
        None if type(entry.get("kept", {})) is dict else f"sample {entry['sample_idx']} kept something that is no dict"
    )
