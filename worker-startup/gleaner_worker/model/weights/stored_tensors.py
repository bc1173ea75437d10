"""The tensors of safetensors files: found by their headers, and read by ranges."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import ml_dtypes
import numpy as np

from gleaner_reader.format.safetensors_header import read_header_text

from ...failures import Failure
from ...limited.frames import Frame
from ...limited.process import LimitedProcess
from ..files.identity import READ_FILES
from ..files.weight_files import WeightFile

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}

FLOATS = {"BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype(np.float16), "F32": np.dtype(np.float32)}
PACKED = {"U8": np.dtype(np.uint8)}
# Enough requests at once for the network of a large host. A thread that converts holds one read more.
THREADS = 32
_READ_BYTES = 16 << 20


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a safetensors file."""

    name: str
    file: WeightFile
    dtype: str  # as safetensors names the type
    shape: tuple[int, ...]
    begin: int  # of its bytes in the file

    def values(self, first: int, end: int) -> np.ndarray:
        """fp32: the values of a float tensor from number `first` to `end`."""
        stored, values = FLOATS[self.dtype], np.empty(end - first, np.float32)
        TensorRead(self.file, self.begin + first * stored.itemsize, stored, values).run()
        return values

    def reads(self, target: np.ndarray) -> "Iterator[TensorRead]":
        """The reads that fill `target`, a contiguous array with the shape of the tensor."""
        values, stored = target.reshape(-1), (FLOATS | PACKED)[self.dtype]
        count = _READ_BYTES // stored.itemsize
        for first in range(0, len(values), count):
            yield TensorRead(self.file, self.begin + first * stored.itemsize, stored, values[first : first + count])


class TensorRead(NamedTuple):
    """A range of a file, and the values that it fills."""

    file: WeightFile
    begin: int
    stored: np.dtype
    target: np.ndarray

    def run(self) -> None:
        is_equal = self.stored == self.target.dtype
        values = self.target if is_equal else np.empty(len(self.target), self.stored)
        self.file.read_into(self.begin, values.view(np.uint8).data)
        if not is_equal:
            self.target[...] = values


def stored_tensors(files: Iterable[WeightFile], where: str) -> list[StoredTensor]:
    """The tensors of safetensors files, from their headers. Raises Failure("model")."""
    process = LimitedProcess(f"{READ_FILES}:tensors_of", {"model": where})
    try:
        with ThreadPoolExecutor(THREADS, "headers") as pool:
            return list(chain.from_iterable(pool.map(partial(_read_tensors, process, where), files)))
    finally:
        process.close()


def _read_tensors(process: LimitedProcess, where: str, file: WeightFile) -> list[StoredTensor]:
    """The tensors of a safetensors file; raises Failure("model") for any other file, damaged or cut short."""

    def read(begin: int, end: int) -> bytes:
        data = bytearray(end - begin)
        file.read_into(begin, memoryview(data))
        return bytes(data)

    try:
        header = read_header_text(read, file.size_bytes, first_read=8)  # so that no byte of a tensor is read here too
    except (OSError, ValueError) as error:
        raise Failure("model", f"Failed to read {file.name} of {where}: {error}; copy the model again") from error
    found = process.ask(Frame({"name": file.name, "size": file.size_bytes}, header)).facts["tensors"]
    return [StoredTensor(name, file, dtype, tuple(shape), begin) for name, dtype, shape, begin in found]
