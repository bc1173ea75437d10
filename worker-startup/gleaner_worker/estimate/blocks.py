"""Samples streams: whole lines that begin in blocks. Blocks are evenly spread over all bytes and do not overlap."""

import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from ..records.lines.stream import MAX_LINE_BYTES, damaged
from ..storage.objects import Bucket, ObjectInfo

BLOCKS = 24
BLOCK_BYTES = 256 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_FACTOR = 8  # a gzip stream compresses worse at its beginning, so more of it is read
_MAX_DECOMPRESSED_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 16 * 1024
_MAX_SAMPLED_LINE_BYTES = 2 * MAX_LINE_BYTES  # a longer line is left out of its block


class FileSource:
    """A stream in a local file, read by ranges [begin, end) of its stored bytes."""

    def __init__(self, path: str):
        self.name, self.size = path, os.path.getsize(path)

    def read(self, begin: int, end: int) -> bytes:
        with open(self.name, "rb") as file:
            file.seek(begin)
            return file.read(end - begin)


class ObjectSource:
    """One generation of a stream in a bucket. `read` raises the errors of Bucket.read_range."""

    def __init__(self, bucket: Bucket, info: ObjectInfo):
        self.name, self.size = info.name, info.size_bytes
        self._bucket, self._generation = bucket, info.generation

    def read(self, begin: int, end: int) -> bytes:
        end = min(end, self.size)
        return self._bucket.read_range(self.name, self._generation, begin, end) if end > begin else b""


Source = FileSource | ObjectSource


@dataclass(frozen=True)
class Block:
    """Whole lines of a stream."""

    stream: str
    data: bytes  # decompressed
    stream_bytes: float  # the bytes of the stored stream that hold these lines


def sample_blocks(sources: Sequence[Source], blocks: int = BLOCKS, size: int = BLOCK_BYTES) -> list[Block] | None:
    """Blocks of lines, evenly spread over the bytes of all streams; None when the blocks would hold all bytes.

    Blocks grow until they hold one line each on average, or until they touch. Raises Failure("stream") for gzip data
    that is damaged.
    """
    largest = max(size, _MAX_SAMPLED_LINE_BYTES)
    is_gzip = cache(lambda source: source.read(0, 2) == _GZIP_MAGIC)
    while size * blocks < sum(source.size for source in sources):
        sampled = list(_blocks(sources, is_gzip, blocks, size))
        if size == largest or sum(block.data.count(b"\n") for block in sampled) >= len(sampled):
            return [block for block in sampled if block.data]
        size = min(size * 4, largest)
    return None


def _blocks(sources: Sequence[Source], is_gzip: Callable[[Source], bool], blocks: int, size: int) -> Iterator[Block]:
    """Yields a block for each place. A gzip stream is readable only from its beginning, so it has one block."""
    ends = list(accumulate(source.size for source in sources))
    entered: set[int] = set()
    covered = 0  # the end of the previous block in all bytes; the last block of a stream begins before its place
    for number in range(blocks):
        place = int((number + 0.5) / blocks * ends[-1])
        index = bisect_right(ends, place)
        source = sources[index]
        offset = ends[index] - source.size
        if not is_gzip(source):
            begin = max(0, covered - offset, min(place - offset, source.size - size))
            end = min(begin + size, source.size)
            covered = offset + end
            yield _plain_block(source, begin, end)
        elif index not in entered:
            entered.add(index)
            yield _gzip_block(source, min(size * _GZIP_FACTOR, _MAX_DECOMPRESSED_BYTES))


def _plain_block(source: Source, begin: int, end: int) -> Block:
    """The whole lines that begin in these bytes, so that long and short lines are equally likely."""
    before = source.read(begin - 1, end) if begin else b"\n" + source.read(0, end)
    data = before.partition(b"\n")[2]
    piece = _PIECE_BYTES
    while data and end < source.size and not data.endswith(b"\n"):
        more = source.read(end, end + piece)
        data += more[: more.find(b"\n") + 1] or more
        end, piece = end + piece, piece * 2
        if piece > _MAX_SAMPLED_LINE_BYTES:  # too long for a record; its end may be far away
            data = data[: data.rfind(b"\n") + 1]
    return Block(source.name, data, len(data))


def _gzip_block(source: Source, size: int) -> Block:
    compressed = source.read(0, size)
    decompressor = zlib.decompressobj(wbits=31)
    try:
        data = decompressor.decompress(compressed, _MAX_DECOMPRESSED_BYTES)
    except zlib.error as error:
        raise damaged(source.name, error) from error
    used = len(compressed) - len(decompressor.unconsumed_tail) - len(decompressor.unused_data)
    stop = len(data) if used == source.size else data.rfind(b"\n") + 1
    return Block(source.name, data[:stop], used * stop / len(data) if stop else 0)
