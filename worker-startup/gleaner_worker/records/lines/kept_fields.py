"""The fields of a record that the shard's index keeps beside the rows (spec: keep)."""

import json

from .rejected import Rejected

MAX_KEPT_BYTES = 64 * 1024


def kept_fields(record: dict, names: tuple[str, ...]) -> str:
    """The record's fields of these names, in their order, as a compact JSON object in ASCII; "" without names.

    A field that the record lacks is left out. Lone surrogates are written as escapes, as in the record.
    Raises Rejected for fields that JSON cannot hold, or that are too long.
    """
    if not names:
        return ""
    fields = {name: record[name] for name in names if name in record}
    try:
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise Rejected(
            f"`{_without_json(fields)}`, which `keep` names, has NaN or Infinity, which JSON cannot hold"
        ) from None
    except RecursionError:
        raise Rejected("has a field, named by `keep`, that is nested too deeply") from None
    if len(text) > MAX_KEPT_BYTES:
        sizes = ", ".join(f"`{name[:60]}` {len(json.dumps(value))}" for name, value in list(fields.items())[:8])
        raise Rejected(
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
