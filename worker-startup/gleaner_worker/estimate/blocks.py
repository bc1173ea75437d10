"""Samples streams: whole lines that begin in blocks, which are evenly spread over all bytes and do not overlap."""

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from ..objects import Bucket
from ..records.stream import MAX_LINE_BYTES, damaged

BLOCKS = 24
BLOCK_BYTES = 256 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_PACKED_TIMES = 8  # the beginning of a gzip stream is packed worse than the rest, so more of it is read
_MOST_UNPACKED = 16 * 1024 * 1024
_PIECE_BYTES = 16 * 1024
_MOST_LINE_BYTES = 2 * MAX_LINE_BYTES  # a longer line is cut off here


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
    stream: str
    data: bytes  # whole lines, unpacked
    stream_bytes: float  # of the stored stream, for these lines


def sample_blocks(sources: Sequence[Source], blocks: int = BLOCKS, size: int = BLOCK_BYTES) -> list[Block] | None:
    """Blocks of lines at even places over the bytes of all streams; None where a sample would be all lines.

    Blocks grow, until they touch each other, where lines are too long for one line at each place.
    """
    largest = max(size, _MOST_LINE_BYTES)
    while size * blocks < sum(source.size for source in sources):
        found = list(_blocks(sources, blocks, size))
        if size == largest or sum(block.data.count(b"\n") for block in found) >= len(found):
            return [block for block in found if block.data]
        size = min(size * 4, largest)
    return None


def _blocks(sources: Sequence[Source], blocks: int, size: int) -> Iterator[Block]:
    """Yields a block for each place. A gzip stream can only be read from its beginning, which is its one block."""
    ends = list(accumulate(source.size for source in sources))
    entered: set[int] = set()
    covered = 0  # of all bytes; the last block of a stream begins before its place
    for number in range(blocks):
        place = int((number + 0.5) / blocks * ends[-1])
        index = bisect_right(ends, place)
        source = sources[index]
        offset = ends[index] - source.size
        if source.read(0, 2) != _GZIP_MAGIC:
            begin = max(0, covered - offset, min(place - offset, source.size - size))
            end = min(begin + size, source.size)
            covered = offset + end
            yield _plain(source, begin, end)
        elif index not in entered:
            entered.add(index)
            yield _packed(source, min(size * _PACKED_TIMES, _MOST_UNPACKED))


def _plain(source: Source, begin: int, end: int) -> Block:
    """The lines that begin in these bytes, each to its end: long and short lines are equally likely."""
    before = source.read(begin - 1, end) if begin else b"\n" + source.read(0, end)
    data = before.partition(b"\n")[2]
    piece = _PIECE_BYTES
    while data and end < source.size and not data.endswith(b"\n"):
        more = source.read(end, end + piece)
        data += more[: more.find(b"\n") + 1] or more
        end, piece = end + piece, piece * 2
        if piece > _MOST_LINE_BYTES:  # no record, and the end of the line may be far
            data = data[: data.rfind(b"\n") + 1]
    return Block(source.name, data, len(data))


def _packed(source: Source, size: int) -> Block:
    packed = source.read(0, size)
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(packed, _MOST_UNPACKED)
    except zlib.error as error:
        raise damaged(source.name, error) from error
    used = len(packed) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
    stop = len(data) if used == source.size else data.rfind(b"\n") + 1
    return Block(source.name, data[:stop], used * stop / len(data) if stop else 0)
