"""Reading the seeds' pickle shards without running what is in them: float32 arrays and plain values, nothing else."""

import gzip
import io
import pickle

import numpy as np


class Unsafe(Exception):
    """The file is not a shard of ours."""


def load_shard(path: str, max_bytes: int) -> object:
    """What the gzipped pickle at `path` holds; raises Unsafe when it is anything but plain values and float32 arrays.

    max_bytes: how large it may get when decompressed.
    """
    try:
        with gzip.open(path, "rb") as file:
            return _ShardUnpickler(_Limited(file, max_bytes)).load()
    except Unsafe:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise Unsafe(f"cannot be read: {type(error).__name__}: {error}") from error


class _Array:
    """Stands for numpy.ndarray in the pickle; never called."""


def _reconstruct(kind: object, _shape: object, _typecode: object) -> np.ndarray:
    if kind is not _Array:
        raise Unsafe(f"it makes a {kind!r}")
    return np.empty(0, np.int8)  # the array's state, with its shape and values, is set next


def _dtype(code: object, *_flags: object) -> np.dtype:
    if code not in ("f4", "<f4"):
        raise Unsafe(f"it has an array of {code!r}, not of float32")
    return np.dtype(np.float32)


_ALLOWED = {
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _dtype,
}


class _ShardUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise Unsafe(f"it asks for {module}.{name}, which a shard never needs") from None

    def persistent_load(self, pid: object) -> object:
        raise Unsafe("it refers to objects outside itself")


class _Limited(io.RawIOBase):
    """A reader that refuses to give more than `left` bytes: a small gzip file can hold terabytes."""

    def __init__(self, file: gzip.GzipFile, left: int):
        self._file, self._left = file, left

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._count(self._file.read(size if 0 <= size <= self._left else self._left + 1))

    def readline(self, size: int | None = -1) -> bytes:
        return self._count(self._file.readline(self._left + 1))

    def readinto(self, buffer) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _count(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise Unsafe("it is larger than its metadata says")
        return data
