"""The hash of a spec, as its run froze it: SHA-256 of its JSON with sorted keys."""

import hashlib
import json


class _Number(str):
    """A number of JSON as it is written: languages write some numbers in different ways."""


def hash_of_spec(manifest: bytes) -> str | None:
    """The hash of `spec` in the text of a manifest; None without a spec. Raises ValueError for too many levels."""
    try:
        spec = json.loads(manifest, parse_float=_Number, parse_int=_Number).get("spec")
        return None if spec is None else hashlib.sha256(_canonical(spec).encode("utf-8", "surrogatepass")).hexdigest()
    except RecursionError:
        raise ValueError("the spec in its manifest has too many levels") from None


def _canonical(value: object) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(key)}:{_canonical(value[key])}' for key in sorted(value, key=_place))}}}"
    return _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _place(key: str) -> tuple:
    """The order of keys in JavaScript: numbers by value, then texts by their UTF-16."""
    is_number = len(key) <= 10 and key.isascii() and key.isdecimal() and key == str(int(key)) and int(key) < 2**32 - 1
    return (0, int(key), b"") if is_number else (1, 0, key.encode("utf-16-be", "surrogatepass"))
