"""Where streams are sampled: whole lines out of blocks that lie evenly over all their bytes."""

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from ..objects import Bucket
from ..records.stream import MAX_LINE_BYTES

BLOCKS = 24
BLOCK_BYTES = 256 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_PACKED_TIMES = 8  # what comes first is packed worse than the rest, so more of it is read
_MOST_UNPACKED = 16 * 1024 * 1024


class Source(Protocol):
    """A stream that can be read in parts."""

    name: str
    size: int

    def read(self, begin: int, end: int) -> bytes: ...


class FileSource:
    def __init__(self, path: str):
        self.name, self.size = path, os.path.getsize(path)

    def read(self, begin: int, end: int) -> bytes:
        with open(self.name, "rb") as file:
            file.seek(begin)
            return file.read(end - begin)


class ObjectSource:
    def __init__(self, bucket: Bucket, name: str, size: int):
        self.name, self.size = name, size
        self._blob = bucket.client.bucket(bucket.name).blob(name)

    def read(self, begin: int, end: int) -> bytes:
        end = min(end, self.size)
        return self._blob.download_as_bytes(start=begin, end=end - 1, raw_download=True) if end > begin else b""


@dataclass(frozen=True)
class Block:
    data: bytes  # whole lines, unpacked
    stream_bytes: float  # of the stream as it is stored, that these lines take


def sample_blocks(sources: Sequence[Source], blocks: int = BLOCKS, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Blocks of lines whose places are evenly spaced over the bytes of all streams.

    A gzip stream cannot be entered in the middle: it gives its beginning, once. The first line after a place is one that
    may be long by that, which blocks of many lines make negligible.
    """
    ends = list(accumulate(source.size for source in sources))
    entered: set[int] = set()
    for number in range(blocks):
        place = int((number + 0.5) / blocks * ends[-1])
        index = bisect_right(ends, place)
        source = sources[index]
        if source.read(0, 2) == _GZIP_MAGIC:
            block = None if index in entered else _packed(source, size * _PACKED_TIMES)
            entered.add(index)
        else:
            block = _plain(source, place - (ends[index] - source.size), size)
        if block:
            yield block


def _plain(source: Source, place: int, size: int) -> Block | None:
    begin = max(0, min(place, source.size - size))
    while True:
        end = min(begin + size, source.size)
        data = source.read(begin, end)
        start = 0 if begin == 0 else data.find(b"\n") + 1
        stop = len(data) if end == source.size else data.rfind(b"\n") + 1
        if stop > start and (begin == 0 or start > 0):
            return Block(data[start:stop], stop - start)
        if size > 2 * MAX_LINE_BYTES or (begin == 0 and end == source.size):
            return None
        # A line that is longer than the block: a larger one holds it whole.
        size *= 4
        begin = max(0, min(begin, source.size - size))


def _packed(source: Source, size: int) -> Block | None:
    packed = source.read(0, size)
    unpacker = zlib.decompressobj(wbits=31)
    data = unpacker.decompress(packed, _MOST_UNPACKED)
    used = len(packed) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
    stop = len(data) if used == source.size else data.rfind(b"\n") + 1
    return Block(data[:stop], used * stop / len(data)) if stop else None
