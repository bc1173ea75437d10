"""An encoded shard in memory: buffers that are read and uploaded as one file."""

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np

from gleaner_reader.format.checksums import as_text, combine, crc32c


class ShardBytes:
    """The buffers as one content to upload, without copies.

    size: in bytes. crc32c: of the whole file, base64. `checksums`: the CRC-32C of each buffer, where known.
    """

    def __init__(self, buffers: Sequence, checksums: Sequence[int] | None = None):
        self._buffers = [memoryview(buffer).cast("B") for buffer in buffers]
        self._ends = list(accumulate(len(buffer) for buffer in self._buffers))
        self._position = 0
        self.size = self._ends[-1] if self._ends else 0
        total = 0
        for buffer, checksum in zip(self._buffers, checksums or map(crc32c, self._buffers), strict=True):
            total = combine(total, checksum, len(buffer))
        self.crc32c = as_text(total)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"Failed to seek to {base + offset}: a file begins at 0")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        return b"".join(self.views(self.size if size < 0 else size))

    def read_range(self, begin: int, end: int) -> bytes:
        self.seek(begin)
        return self.read(end - begin)

    def views(self, size: int) -> list[memoryview]:
        """Reads the next bytes, at most `size`, without a copy."""
        parts, missing = [], min(size, self.size - self._position)
        number = int(np.searchsorted(self._ends, self._position, "right"))
        while missing > 0:
            buffer, end = self._buffers[number], self._ends[number]
            start = self._position - (end - len(buffer))
            part = buffer[start : start + missing]
            parts.append(part)
            self._position, missing, number = self._position + len(part), missing - len(part), number + 1
        return parts


def bytes_of(array: np.ndarray) -> np.ndarray:
    """uint8 view of a C-contiguous array."""
    if not array.flags.c_contiguous:
        raise ValueError("only a contiguous array can be written without a copy")
    return array.reshape(-1).view(np.uint8)


def checksums_of(buffers: Sequence[np.ndarray], threads: int) -> list[int]:
    """The CRC-32C of each buffer."""
    if threads == 1 or len(buffers) < 2:
        return [crc32c(buffer) for buffer in buffers]
    with ThreadPoolExecutor(threads, "checksum") as pool:
        return list(pool.map(crc32c, buffers))
