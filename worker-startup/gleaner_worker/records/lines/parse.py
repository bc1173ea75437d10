"""Parses a line of a stream into its record."""

import json

from .rejected import Rejected
from .stream import MAX_LINE_BYTES, Line


def parse_line(line: Line) -> dict:
    """Raises Rejected. The record may hold lone surrogates and NaN; later steps check the fields that they use."""
    if line.data is None:
        raise Rejected(f"is {line.size_bytes} bytes long; the limit is {MAX_LINE_BYTES}")
    if not line.data.strip():
        raise Rejected("is empty")
    try:
        text = line.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejected(f"is not UTF-8: byte {error.start + 1} is 0x{line.data[error.start]:02x}") from error
    if text.startswith("\ufeff"):
        raise Rejected("is not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)")
    try:
        record = _DECODER.decode(text)
    except RecursionError:
        raise Rejected("is not JSON that can be read: it is nested too deeply") from None
    except _Repeated as error:
        raise Rejected(f"has the key `{error.args[0][:60]}` twice") from error
    except ValueError as error:
        raise Rejected(f"is not JSON: {str(error)[:200]}") from error
    if not isinstance(record, dict):
        raise Rejected(f"is {kind_of(record)}, not a JSON object")
    return record


def check_text(value: object, field: str) -> str:
    """The value. Raises Rejected, unless it is a string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise Rejected(f"`{field}` is {kind_of(value)}, not a string")
    if value.isascii():  # known without a look at the text
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        raise Rejected(f"`{field}` has a lone surrogate, \\u{code:04x}, at character {error.start + 1}") from error
    return value


def check_tokens(value: object, field: str) -> list[int]:
    """The value. Raises Rejected, unless it is a list of integers; a later step compares them with the vocabulary."""
    if not isinstance(value, list):
        raise Rejected(f"`{field}` is {kind_of(value)}, not a list of token ids")
    for position, token in enumerate(value):
        if type(token) is not int:
            raise Rejected(f"`{field}` has {kind_of(token)} at position {position}, not a token id")
    return value


def kind_of(value: object) -> str:
    """The JSON type of the value, in words."""
    names: dict[type, str] = {
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number with a fraction",
        list: "a list",
    }
    return "null" if value is None else names.get(type(value), "an object")


def list_fields(record: dict) -> str:
    """The names of the record's first fields, for messages."""
    names = [f"`{name[:40]}`" for name in list(record)[:8]]
    return ", ".join(names) + (", …" if len(record) > 8 else "") if names else "none"


class _Repeated(Exception):
    pass


def _object(pairs: list[tuple[str, object]]) -> dict:
    record = dict(pairs)
    if len(record) < len(pairs):
        # The record does not show which of the two values is right.
        seen: set[str] = set()
        raise _Repeated(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_object)  # made once, because making one takes as long as a short line
