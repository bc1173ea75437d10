"""Reads the seeds' pickles without running them: plain values and arrays of fp32 or fp16, nothing else."""

import gzip
import io
from typing import BinaryIO

from .errors import Unsafe
from .pickle_machine import Machine, Take


def load_shard(file: BinaryIO, max_bytes: int, take: Take = lambda layer, array: array) -> object:
    """The values of a gzipped pickle; raises Unsafe unless they are plain values and arrays of fp32 or fp16.

    max_bytes: the limit of the decompressed pickle. take(layer, array): returns the replacement of each array, so that
    a caller keeps only the arrays that it needs; `layer` is the key of the array.
    """
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            limited = _Limited(unpacked, max_bytes)
            return Machine(io.BufferedReader(limited, 1 << 16), limited, take).run()
    except Unsafe:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise Unsafe(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


class _Limited(io.RawIOBase):
    """A reader that refuses to return more than `left` bytes: a small gzip file can hold terabytes."""

    def __init__(self, file: gzip.GzipFile, left: int):
        self._file = file
        self.left, self.given = left, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._file.readinto(memoryview(buffer)[: self.left + 1])
        self.left, self.given = self.left - count, self.given + count
        if self.left < 0:
            raise Unsafe("it is larger than its metadata says")
        return count
