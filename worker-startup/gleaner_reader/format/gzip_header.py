"""The metadata of a pkl.gz shard: JSON in the `extra` field of gzip's header (RFC 1952), before the compressed data."""

import json
import struct
from collections.abc import Callable

from .errors import ShardError

_FIXED = struct.Struct("<2sBBIBB")
_MAGIC, _DEFLATE, _HAS_EXTRA, _UNIX = b"\x1f\x8b", 8, 4, 3
_SUBFIELD = b"GL"
_MAX_EXTRA_BYTES = 0xFFFF


def gzip_header(metadata: dict[str, str]) -> bytes:
    """The header of a gzip member, without a time or a name. Leaves out the longest values beyond 64 KiB in all."""
    kept = dict(sorted(metadata.items()))
    while kept and len(text := json.dumps(kept, separators=(",", ":")).encode("ascii")) > _MAX_EXTRA_BYTES - 4:
        del kept[max(kept, key=lambda key: len(kept[key]))]
    if not kept:
        return _FIXED.pack(_MAGIC, _DEFLATE, 0, 0, 0, _UNIX)
    extra = _SUBFIELD + struct.pack("<H", len(text)) + text
    return _FIXED.pack(_MAGIC, _DEFLATE, _HAS_EXTRA, 0, 0, _UNIX) + struct.pack("<H", len(extra)) + extra


def read_gzip_header(read: Callable[[int, int], bytes | memoryview], size: int, name: str) -> dict[str, str]:
    """The metadata of gzip_header; empty for a gzip file of other software. Raises ShardError for any other file."""
    fixed = _FIXED.size
    head = bytes(read(0, min(size, fixed + 2 + _MAX_EXTRA_BYTES)))
    if len(head) < fixed or head[:2] != _MAGIC or head[2] != _DEFLATE:
        raise ShardError(f"{name} cannot be read: it is not a gzip file")
    if not head[3] & _HAS_EXTRA:
        return {}
    extra = head[fixed + 2 : fixed + 2 + int.from_bytes(head[fixed : fixed + 2], "little")]
    while len(extra) >= 4:
        length = int.from_bytes(extra[2:4], "little")
        if extra[:2] == _SUBFIELD:
            return _parse(extra[4 : 4 + length], name)
        extra = extra[4 + length :]
    return {}


def _parse(text: bytes, name: str) -> dict[str, str]:
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ShardError(f"{name} cannot be read: its header is damaged: {error}") from error
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ShardError(f"{name} cannot be read: its header is damaged: it does not map text to text")
    return metadata
