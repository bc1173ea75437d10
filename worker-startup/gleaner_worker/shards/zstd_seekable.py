"""zstd's seekable format: `zstd -d` gives the plain file, and a reader can fetch any range of it."""

import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zstandard

from gleaner_reader.format.seekable import FRAME_BYTES, SKIPPABLE_MAGIC, TABLE_MAGIC

_LEVEL = 1


def frame_bytes(row_bytes: int) -> int:
    """The bytes of a tensor in one frame. A frame holds whole rows, unless one row is larger than a frame."""
    return max(1, FRAME_BYTES // max(row_bytes, 1)) * row_bytes if row_bytes <= FRAME_BYTES else FRAME_BYTES


def compress(pieces: Sequence[np.ndarray], threads: int) -> list[bytes]:
    """A frame for each piece (uint8 [n > 0]), then the table of frames. `threads` has no effect on the bytes."""
    own = threading.local()  # each thread has one compressor, for all of its frames

    def prepare() -> None:
        own.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    with ThreadPoolExecutor(threads, "zstd", prepare) as pool:
        frames = list(pool.map(lambda piece: own.compressor.compress(piece), pieces))
    entries = [struct.pack("<II", len(frame), len(piece)) for frame, piece in zip(frames, pieces, strict=True)]
    table = b"".join(entries) + struct.pack("<IBI", len(frames), 0, TABLE_MAGIC)
    return [*frames, struct.pack("<II", SKIPPABLE_MAGIC, len(table)) + table]
