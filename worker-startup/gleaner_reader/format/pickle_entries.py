"""Checks the plain values of a pickle: a dict from layer to a list of entries, one entry for each sample."""

from .safe_pickle import ArrayStub

_FIELDS = {"sample_idx", "activation", "shape", "text_preview"}
_OPTIONAL = {"positions", "kept"}
_MAX_DIMENSIONS = 8
# Kept fields have at most 64 KiB as JSON, and a value takes two characters. Python compares values recursively.
_MAX_KEPT_VALUES, _MAX_KEPT_DEPTH = 1 << 15, 500


def problem_of(data: object) -> str | None:
    """Describes the first value that a shard cannot have, as a sentence; None for a shard."""
    if not isinstance(data, dict) or not all(type(layer) is int and layer >= 0 for layer in data):
        return "it is not a dict of layers"
    numbers = None
    for layer, entries in data.items():
        if type(entries) is not list or not all(type(entry) is dict for entry in entries):
            return f"its layer {layer} is not a list of dicts"
        if problem := next(filter(None, map(_entry_problem, entries)), None):
            return f"in layer {layer} {problem}"
        indices = [entry["sample_idx"] for entry in entries]
        if numbers is not None and indices != numbers:
            return f"it has other samples in layer {layer} than in layer {next(iter(data))}"
        numbers = indices
    return None


def _entry_problem(entry: dict) -> str | None:
    if not _FIELDS <= set(entry) <= _FIELDS | _OPTIONAL:
        return f"an entry has fields other than {', '.join(sorted(_FIELDS))}"
    if type(entry["sample_idx"]) is not int or not 0 <= entry["sample_idx"] < 1 << 62:
        return "an entry has a sample_idx that is not a number from 0"
    if not _is_shape(entry["shape"]):
        return f"sample {entry['sample_idx']} has a shape that is not a tuple of small numbers"
    if type(entry["text_preview"]) is not str:
        return f"sample {entry['sample_idx']} has a text_preview that is not text"
    if type(entry["activation"]) is not ArrayStub or not entry["activation"].is_made:
        return f"sample {entry['sample_idx']} has an activation that is not an array"
    positions = entry.get("positions", [])
    if type(positions) is not list or not all(type(p) is int and 0 <= p < 1 << 31 for p in positions):
        return f"sample {entry['sample_idx']} has positions that are not a list of numbers"
    if not _are_kept_fields(entry.get("kept", {})):
        return f"sample {entry['sample_idx']} has kept fields that are not an object of JSON, or are too large"
    return None


def _is_shape(value: object) -> bool:
    if type(value) is not tuple or len(value) > _MAX_DIMENSIONS:
        return False
    return all(type(size) is int and 0 <= size < 1 << 31 for size in value)


def _are_kept_fields(fields: object) -> bool:
    """True for a dict of JSON values within the limits. A value outside the limits is never printed or compared."""
    if not isinstance(fields, dict):
        return False
    level, left = [fields], _MAX_KEPT_VALUES
    for _ in range(_MAX_KEPT_DEPTH):
        inner = []
        for value in level:
            if isinstance(value, dict | list):
                left -= len(value)
                if left < 0 or (isinstance(value, dict) and not all(type(key) is str for key in value)):
                    return False
                inner += value.values() if isinstance(value, dict) else value
            elif value is not None and type(value) not in (str, int, float, bool):
                return False
        if not inner:
            return True
        level = inner
    return False
