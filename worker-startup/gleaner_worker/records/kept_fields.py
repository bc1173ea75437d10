"""The fields of a record that the shard's index keeps beside the rows (spec: keep)."""

import json

from .reject_reason import RejectReason

MAX_KEPT_BYTES = 64 * 1024


def kept_fields(record: dict, names: tuple[str, ...]) -> str | RejectReason:
    """The record's fields of these names, in their order, as a compact JSON object in ASCII; "" without names.

    A field that the record lacks is left out. Lone surrogates are written as escapes, as in the record.
    """
    if not names:
        return ""
    fields = {name: record[name] for name in names if name in record}
    try:
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return RejectReason(
            f"`{_without_json(fields)}`, which `keep` names, has NaN or Infinity, which JSON cannot hold"
        )
    except RecursionError:
        return RejectReason("has a field, named by `keep`, that is nested too deeply")
    if len(text) > MAX_KEPT_BYTES:
        sizes = ", ".join(f"`{name[:60]}` {len(json.dumps(value))}" for name, value in list(fields.items())[:8])
        return RejectReason(
            f"has {len(text)} bytes in the fields that `keep` names ({sizes}); the limit is {MAX_KEPT_BYTES}"
        )
    return text


def _without_json(fields: dict) -> str:
    """The first field with a value that JSON cannot hold."""
    for name, value in fields.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            return name[:60]
    raise AssertionError("every field can be written")
