"""zstd's seekable format: independent frames, and a table of their sizes at the end of the file.

https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md
"""

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from .errors import MissingPackage, ShardError
from .forks import cached_property
from .limits import MAX_FRAME_BYTES, MAX_FRAMES

SKIPPABLE_MAGIC = 0x184D2A5E
TABLE_MAGIC = 0x8F92EAB1
_FOOTER = struct.Struct("<IBI")
_SKIPPABLE_HEADER = struct.Struct("<II")
_HAS_CHECKSUMS, _RESERVED = 0x80, 0x7C
_FIRST_READ = 1 << 12  # enough for the table of a shard of 2 GB
FRAME_BYTES = 1 << 22  # of the largest frame of the writer


class File(Protocol):
    """Bytes by range, of this machine or of a bucket. Threads may share a file."""

    @property
    def url(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, begin: int, end: int) -> bytes | memoryview:
        """Returns exactly the requested bytes; raises ShardError if the file is shorter."""
        ...


class Plain:
    """The decompressed content of a seekable zstd file, as a File. A read decompresses only the frames of its range."""

    def __init__(self, file: File):
        try:
            import zstandard  # noqa: F401
        except ImportError:
            raise MissingPackage(f"read {file.url}", "zstandard") from None
        self.url = file.url
        self._file = file

    @property
    def size(self) -> int:
        return int(self._frames[1][-1])

    @property
    def first_frame(self) -> int:
        """The decompressed size of the first frame in bytes: the writer puts the header there."""
        return int(self._frames[1][1])

    def read(self, begin: int, end: int) -> bytes | memoryview:
        if begin >= end:
            return b""
        packed, plain = self._frames
        if not 0 <= begin < end <= plain[-1]:
            raise ShardError(f"{self.url} cannot be read: it ends at byte {plain[-1]}, before byte {end}")
        first, last = np.searchsorted(plain, [begin, end - 1], "right") - 1
        data = memoryview(self._file.read(int(packed[first]), int(packed[last + 1])))

        def unpack(frame: int) -> bytes:
            start, stop = (int(place - packed[first]) for place in packed[frame : frame + 2])
            return self._decompress(data[start:stop], int(plain[frame + 1] - plain[frame]), frame)

        if first == last:
            parts = [unpack(first)]
        else:
            with ThreadPoolExecutor(os.cpu_count(), "zstd") as pool:
                parts = list(pool.map(unpack, range(first, last + 1)))
        skipped = begin - int(plain[first])
        whole = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        return whole[skipped : skipped + end - begin]

    def _decompress(self, frame: memoryview, size: int, number: int) -> bytes:
        import zstandard

        try:
            # The check comes first, because decompression allocates the size that the frame states.
            if zstandard.frame_content_size(frame) != size:
                raise ShardError(
                    f"{self.url} cannot be read: frame {number} does not have the {size} bytes that the table states"
                )
            return zstandard.ZstdDecompressor().decompress(frame, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ShardError(f"{self.url} cannot be read: frame {number} is damaged: {error}") from error

    @cached_property
    def _frames(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [frames + 1] each: the begin of every frame, packed and plain, and the end of the last frame."""
        file, size = self._file, self._file.size
        tail = bytes(file.read(max(0, size - _FIRST_READ), size))
        if len(tail) < _FOOTER.size or _FOOTER.unpack(tail[-_FOOTER.size :])[2] != TABLE_MAGIC:
            raise ShardError(f"{self.url} cannot be read: it does not end with a table of its frames; it was cut short")
        count, flags, _ = _FOOTER.unpack(tail[-_FOOTER.size :])
        entry = 12 if flags & _HAS_CHECKSUMS else 8
        table = _SKIPPABLE_HEADER.size + count * entry + _FOOTER.size
        if flags & _RESERVED or count > MAX_FRAMES or table > size:
            raise ShardError(f"{self.url} cannot be read: its table would have {count} frames; it is damaged")
        if table > len(tail):
            tail = bytes(file.read(size - table, size))
        tail = tail[len(tail) - table :]
        magic, length = _SKIPPABLE_HEADER.unpack(tail[: _SKIPPABLE_HEADER.size])
        if magic != SKIPPABLE_MAGIC or length != table - _SKIPPABLE_HEADER.size:
            raise ShardError(f"{self.url} cannot be read: the table of its frames is damaged")
        entries = np.frombuffer(tail, "<u4", count * entry // 4, _SKIPPABLE_HEADER.size).reshape(count, entry // 4)
        sizes = np.zeros((2, count + 1), np.int64)
        sizes[:, 1:] = entries[:, :2].T
        packed, plain = np.cumsum(sizes, axis=1)
        if packed[-1] != size - table or count == 0 or (sizes[:, 1:] == 0).any() or sizes[1].max() > MAX_FRAME_BYTES:
            raise ShardError(f"{self.url} cannot be read: its table of frames does not match the file; it is damaged")
        return packed, plain
