"""From a line of a stream to what the tokenizer gets, or to the reason why not."""

import json
from dataclasses import dataclass

from . import arc
from .stream import MAX_LINE_BYTES, Line

KNOWN_FIELDS = "`text`, `prompt`, `tokens`, or an ARC task's `train` and `test`"


@dataclass(frozen=True)
class Bad:
    reason: str


def parse_record(line: Line, field: str | None) -> str | list[int] | Bad:
    """Text to tokenise, token ids, or why the line is rejected.

    `field` (spec: record.field) names the field to read; otherwise the first known field of the record is taken.
    """
    record = _parse_json(line)
    if isinstance(record, Bad):
        return record
    if field is not None:
        if field not in record:
            return Bad(f"has no field `{field}`, which the spec's record.field names; it has {_list_fields(record)}")
        return _tokens(record[field], field) if isinstance(record[field], list) else _text(record[field], field)
    for name in ("text", "prompt"):
        if name in record:
            return _text(record[name], name)
    if "tokens" in record:
        return _tokens(record["tokens"], "tokens")
    if "train" in record and "test" in record:
        try:
            return arc.encode_task(record)
        except ValueError as error:
            return Bad(f"is not an ARC task: {error}")
    return Bad(f"has no known field: it has {_list_fields(record)}; known are {KNOWN_FIELDS}")


def _parse_json(line: Line) -> dict | Bad:
    if line.data is None:
        return Bad(f"is {line.size_bytes} bytes long; the limit is {MAX_LINE_BYTES}")
    if not line.data.strip():
        return Bad("is empty")
    try:
        text = line.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Bad(f"is not UTF-8: byte {error.start + 1} is 0x{line.data[error.start]:02x}")
    try:
        record = json.loads(text)
    except RecursionError:
        return Bad("is not JSON that can be read: it is nested too deeply")
    except ValueError as error:
        return Bad(f"is not JSON: {str(error)[:200]}")
    return record if isinstance(record, dict) else Bad(f"is {_kind(record)}, not a JSON object")


def _text(value: object, field: str) -> str | Bad:
    if not isinstance(value, str):
        return Bad(f"`{field}` is {_kind(value)}, not a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        return Bad(f"`{field}` has a lone surrogate, \\u{code:04x}, at character {error.start + 1}")
    return value


def _tokens(value: object, field: str) -> list[int] | Bad:
    if not isinstance(value, list):
        return Bad(f"`{field}` is {_kind(value)}, not a list of token ids")
    for position, token in enumerate(value):
        if type(token) is not int:
            return Bad(f"`{field}` has {_kind(token)} at position {position}, not a token id")
    return value


def _kind(value: object) -> str:
    names = {
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number with a fraction",
        list: "a list",
    }
    return "null" if value is None else names.get(type(value), "an object")


def _list_fields(record: dict) -> str:
    names = [f"`{name[:40]}`" for name in list(record)[:8]]
    return (
        ", ".join(names).encode("utf-8", "replace").decode() + (", …" if len(record) > 8 else "") if names else "none"
    )
