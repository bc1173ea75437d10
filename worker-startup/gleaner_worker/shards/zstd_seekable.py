"""zstd's seekable format: `zstd -d` gives the plain file, and a reader can fetch any part of it by ranges."""

import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zstandard

from gleaner_reader.seekable import SKIPPABLE_MAGIC, TABLE_MAGIC

FRAME_BYTES = 1 << 22
_LEVEL = 1


def frame_bytes(row_bytes: int) -> int:
    """The bytes of a tensor in one frame: whole rows, so that a reader of some rows unpacks no frame in vain."""
    return max(1, FRAME_BYTES // max(row_bytes, 1)) * row_bytes if row_bytes <= FRAME_BYTES else FRAME_BYTES


def compress(pieces: Sequence[np.ndarray], threads: int) -> list[bytes]:
    """A frame for each piece, uint8 [n > 0], and the table of frames: the same bytes for any number of threads."""
    own = threading.local()  # one thread uses a compressor at a time, and keeps it for all its frames

    def prepare() -> None:
        own.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    with ThreadPoolExecutor(threads, "zstd", prepare) as pool:
        frames = list(pool.map(lambda piece: own.compressor.compress(piece), pieces))
    entries = [struct.pack("<II", len(frame), len(piece)) for frame, piece in zip(frames, pieces, strict=True)]
    table = b"".join(entries) + struct.pack("<IBI", len(frames), 0, TABLE_MAGIC)
    return [*frames, struct.pack("<II", SKIPPABLE_MAGIC, len(table)) + table]
