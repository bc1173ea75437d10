"""From a line of a stream to the record that it holds, or to the reason why it holds none."""

import json
from dataclasses import dataclass

from .stream import MAX_LINE_BYTES, Line

_REASON_CHARS = 600


@dataclass(frozen=True)
class Bad:
    """Why a line, or one sample of it, is rejected; can always be written as UTF-8."""

    reason: str

    def __post_init__(self) -> None:
        clean = self.reason[:_REASON_CHARS].encode("utf-8", "backslashreplace").decode()
        object.__setattr__(self, "reason", clean)


def parse_line(line: Line) -> dict | Bad:
    """A record whose strings may hold lone surrogates, and its numbers NaN: what is used of it is checked then."""
    if line.data is None:
        return Bad(f"is {line.size_bytes} bytes long; the limit is {MAX_LINE_BYTES}")
    if not line.data.strip():
        return Bad("is empty")
    try:
        text = line.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Bad(f"is not UTF-8: byte {error.start + 1} is 0x{line.data[error.start]:02x}")
    try:
        record = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        return Bad("is not JSON that can be read: it is nested too deeply")
    except _Repeated as error:
        return Bad(f"has the key `{error.args[0][:60]}` twice")
    except ValueError as error:
        return Bad(f"is not JSON: {str(error)[:200]}")
    return record if isinstance(record, dict) else Bad(f"is {kind_of(record)}, not a JSON object")


def check_text(value: object, field: str) -> str | Bad:
    if not isinstance(value, str):
        return Bad(f"`{field}` is {kind_of(value)}, not a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        return Bad(f"`{field}` has a lone surrogate, \\u{code:04x}, at character {error.start + 1}")
    return value


def check_tokens(value: object, field: str) -> list[int] | Bad:
    """Whole numbers; whether the vocabulary has them is seen later."""
    if not isinstance(value, list):
        return Bad(f"`{field}` is {kind_of(value)}, not a list of token ids")
    for position, token in enumerate(value):
        if type(token) is not int:
            return Bad(f"`{field}` has {kind_of(token)} at position {position}, not a token id")
    return value


def kind_of(value: object) -> str:
    names = {
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number with a fraction",
        list: "a list",
    }
    return "null" if value is None else names.get(type(value), "an object")


def list_fields(record: dict) -> str:
    names = [f"`{name[:40]}`" for name in list(record)[:8]]
    return ", ".join(names) + (", …" if len(record) > 8 else "") if names else "none"


class _Repeated(Exception):
    pass


def _object(pairs: list[tuple[str, object]]) -> dict:
    record = dict(pairs)
    if len(record) < len(pairs):
        # Which of the two was meant, nobody can know.
        seen: set[str] = set()
        raise _Repeated(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return record
