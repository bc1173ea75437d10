"""The pickle format of the seed scripts: dict layer -> list of samples, gzipped as members compressed in parallel.

A gzip file may consist of any number of members, and every reader of gzip reads them as one.
"""

import json
import pickle
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from gleaner_reader.format.gzip_header import gzip_header

from .index import row_positions
from .plan import ShardPlan

_MEMBER_BYTES = 1 << 22
_LEVEL = 1


def encode_pickle(
    plan: ShardPlan, layers: dict[int, np.ndarray], metadata: dict[str, str], threads: int
) -> list[bytes]:
    """layers: layer -> [rows, d_model] fp32 or fp16. metadata: goes into a header field that gzip readers skip."""
    with ThreadPoolExecutor(threads, "gzip") as pool:
        members = _Members(pool, gzip_header(metadata), ahead=2 * threads)
        pickler = pickle.Pickler(members, protocol=4)
        # No memo: a memo makes the bytes depend on shared objects, and keeps every array twice in memory.
        pickler.fast = True
        pickler.dump({layer: list(_entries(plan, rows)) for layer, rows in layers.items()})
        return members.finish()


def _entries(plan: ShardPlan, rows: np.ndarray) -> Iterator[dict]:
    offsets = plan.row_offsets
    positions = row_positions(plan)
    for number, sample in enumerate(plan.samples):
        activation = rows[offsets[number] : offsets[number + 1]]
        entry = {
            "sample_idx": sample.index,
            "activation": activation,
            "shape": activation.shape,
            "text_preview": sample.preview,
        }
        if positions is not None:
            entry["positions"] = positions[number].tolist()
        if sample.kept:
            entry["kept"] = json.loads(sample.kept)
        yield entry


class _Members:
    """A writable file that compresses each _MEMBER_BYTES of its content; at most `ahead` members wait in memory."""

    def __init__(self, pool: ThreadPoolExecutor, first_header: bytes, ahead: int):
        self._pool, self._header, self._ahead = pool, first_header, ahead
        self._parts: list[memoryview] = []
        self._size = 0
        self._running: deque[Future] = deque()
        self._done: list[bytes] = []

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        begin = 0
        while begin < len(view):
            part = view[begin : begin + _MEMBER_BYTES - self._size]
            # The pickler reuses its own buffer for small writes, so a buffer other than bytes is copied.
            self._parts.append(part if isinstance(data, bytes) else memoryview(bytes(part)))
            self._size += len(part)
            begin += len(part)
            if self._size == _MEMBER_BYTES:
                self._compress()
        return len(view)

    def finish(self) -> list[bytes]:
        if self._size or not (self._done or self._running):
            self._compress()
        return self._done + [future.result() for future in self._running]

    def _compress(self) -> None:
        self._running.append(self._pool.submit(_compress_member, self._header, self._parts))
        self._header, self._parts, self._size = gzip_header({}), [], 0
        if len(self._running) > self._ahead:
            self._done.append(self._running.popleft().result())


def _compress_member(header: bytes, parts: list[memoryview]) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    member, checksum, size = [header], 0, 0
    for part in parts:
        member.append(compressor.compress(part))
        checksum, size = zlib.crc32(part, checksum), size + len(part)
    member += [compressor.flush(), struct.pack("<II", checksum, size & 0xFFFFFFFF)]
    return b"".join(member)
