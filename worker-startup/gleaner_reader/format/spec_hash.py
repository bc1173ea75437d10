"""The hashes of a spec and of a manifest, as the control plane makes them: SHA-256 of JSON with sorted keys."""

import hashlib
import json
from collections.abc import Callable


class _Number(str):
    """A number of JSON as it is written: languages write some numbers in different ways."""


def hash_of_spec(manifest: bytes) -> str | None:
    """The hash of `spec` in the text of a manifest; None without a spec. Raises ValueError for too many levels."""
    return _hash(manifest, lambda values: values.get("spec"))


def hash_of_manifest(manifest: bytes) -> str:
    """The hash of all that the control plane states, but for the digest, which covers this hash. Raises ValueError.

    `reference` is left out: a comparison adds it later.
    """

    def without_digest(values: dict) -> dict:
        result = values.get("result")
        kept = {key: result[key] for key in result if key != "digest"} if isinstance(result, dict) else result
        return {key: values[key] for key in values if key != "reference"} | (
            {"result": kept} if "result" in values else {}
        )

    return _hash(manifest, without_digest) or ""


def _hash(manifest: bytes, part: Callable[[dict], object]) -> str | None:
    try:
        value = part(json.loads(manifest, parse_float=_Number, parse_int=_Number))
        return None if value is None else hashlib.sha256(_canonical(value).encode("utf-8", "surrogatepass")).hexdigest()
    except RecursionError:
        raise ValueError("its manifest has too many levels") from None


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
