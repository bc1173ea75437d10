"""Reads the pickle of a pkl.gz shard without running it: plain values and arrays of fp32 or fp16, nothing else.

Uses the standard library's Unpickler in Python: the C version hides its stack and allocates any stated size.
"""

import gzip
import io
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Any, BinaryIO

import numpy as np

from .errors import Unsafe

Take = Callable[[object, np.ndarray], object]

# An opcode counts as an average object with its place in a list. Empty lists and dicts are larger. Some opcodes make no
# object: they count for a place in a list, and for time. Larger text counts with its real size.
_OPCODE_BYTES = 48
_BYTES_OF_OPCODE = {b"]": 96, b"}": 96} | {bytes([code]): 16 for code in b"KN\x88\x89()qr\x94hjaesu"}
# Of a text or an integer. Kept fields have at most 64 KiB as JSON in ASCII, and a preview has 200 characters.
_MAX_TEXT_BYTES = 1 << 16
_TOO_MANY_VALUES = "it has more text, numbers, lists, tuples and dicts than a shard of its size"
_MAX_DEPTH, _MAX_KEY = 100, 1 << 31
_MAX_NAME_BYTES, _BUFFER_BYTES, _PIECE_BYTES = 200, 1 << 16, 1 << 23
_DTYPES = {"f4": np.dtype("<f4"), "<f4": np.dtype("<f4"), "f2": np.dtype("<f2"), "<f2": np.dtype("<f2")}
# Handled by pickle.py, in its order: protocol; containers; their changes; constants, numbers; memo; names.
_PLAIN = b"\x80.(}])t\x85\x86\x87aesuN\x88\x89JKMGqr\x94hjc\x93Rb"
# The opcodes that state a size, with the width of the size in bytes.
_TEXTS, _BYTES, _INTEGERS = {0x8C: 1, 0x58: 4, 0x8D: 8}, {0x43: 1, 0x42: 4, 0x8E: 8, 0x96: 8}, {0x8A: 1, 0x8B: 4}


def load_shard(
    file: BinaryIO, max_array_bytes: int, take: Take = lambda layer, array: array, max_value_bytes: int = 1 << 25
) -> object:
    """The values of a gzipped pickle. Raises Unsafe unless they are plain values and arrays of fp32 or fp16.

    max_array_bytes: limit of the bytes of all arrays. max_value_bytes: limit of the memory of all other values, counted
    as _OPCODE_BYTES says. take(layer, array): called for each array, so that a caller keeps only the arrays that it
    needs. `layer` is the key of the array in the outermost dict. An ArrayStub with its result replaces it.
    """
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            source = _Source(unpacked, _BUFFER_BYTES)  # pyrefly: ignore[bad-argument-type]
            unpickler = _CheckedUnpickler(source, take, max_array_bytes, max_value_bytes)
            try:
                value = unpickler.load()
                if source.read(1):  # at the end, this read also compares gzip's checksum
                    raise Unsafe("it has data after its end")
                return value
            finally:
                vars(unpickler).clear()  # frees the values, which the memo and reference cycles hold
    except Unsafe:
        raise
    except Exception as error:  # a damaged pickle can raise any error
        raise Unsafe(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


class _Source(io.BufferedReader):
    """Reads names of a few bytes: a line can be as large as the file."""

    def readline(self, size: int | None = -1) -> bytes:
        return super().readline(_MAX_NAME_BYTES)


class _Memo(list):
    """The values that a pickle can repeat. A repeated list, dict or array would cost time and memory in each place."""

    def __setitem__(self, number: Any, value: object) -> None:
        if number != len(self):
            raise Unsafe("it numbers its values in another order than a shard")
        self.append(Unsafe if isinstance(value, list | dict | bytearray | ArrayStub) else value)

    def __getitem__(self, number: Any) -> object:  # pyrefly: ignore[bad-override]
        if (value := super().__getitem__(number)) is Unsafe:
            raise Unsafe("it repeats a list, a dict or an array")
        return value


class _Name:
    """A name of numpy, which a pickle can call and cannot change."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable | None = None):
        self._call = call

    def __call__(self, *arguments: object) -> object:
        if self._call is None:
            raise Unsafe("it calls an object that is not an array")
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise Unsafe("it changes an object that is not an array")


class _Dtype:
    """Replaces numpy.dtype."""

    __slots__ = ("dtype",)

    def __init__(self, code: object = None, *_: object):
        if type(code) is not str or code not in _DTYPES:
            raise Unsafe(f"it has an array of {_shown(code)}, not of float32 or float16")
        self.dtype = _DTYPES[code]

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise Unsafe("it has an array that is not little-endian")


class ArrayStub:
    """Replaces an array. is_made: the pickle has given the values. value: the result of take for the array."""

    __slots__ = ("_make", "is_made", "value")

    def __init__(self, make: Callable):
        self._make, self.is_made, self.value = make, False, None

    def __setstate__(self, state: Any) -> None:
        if self.is_made:
            raise Unsafe("it changes an array")
        _, shape, dtype, is_fortran, data = state
        self.value, self.is_made = self._make(shape, dtype, is_fortran, data), True
        del self._make


class _CheckedUnpickler(pickle._Unpickler):
    """Checks each opcode before its handler runs."""

    stack: list
    metastack: list[list]

    def __init__(self, file: Any, take: Take, max_array_bytes: int, max_value_bytes: int):
        super().__init__(file)
        self._source, self.memo = file, _Memo()
        self._take, self._array_bytes, self._value_bytes = take, max_array_bytes, max_value_bytes
        self._ndarray, dtype, self._handlers = _Name(), _Name(_Dtype), _HANDLERS
        make, wrap = _Name(self._reconstruct), _Name(self._from_buffer)
        self._names = {("numpy", "ndarray"): self._ndarray, ("numpy", "dtype"): dtype}
        for core in ("numpy.core", "numpy._core"):
            self._names |= {(f"{core}.multiarray", "_reconstruct"): make, (f"{core}.numeric", "_frombuffer"): wrap}

    def load(self) -> object:
        """Reads the values, and checks each opcode before its handler runs."""
        self.stack, self.metastack = [], []
        self.append = self.stack.append
        self.read, self.readline = self._source.read, self._source.readline
        try:
            while code := self.read(1):
                self._value_bytes -= _BYTES_OF_OPCODE.get(code, _OPCODE_BYTES)
                if self._value_bytes < 0:
                    raise Unsafe(_TOO_MANY_VALUES)
                if not (handler := self._handlers.get(code[0])):
                    raise Unsafe(f"it has the opcode {code!r}, which a shard never needs")
                if code == b"(" and len(self.metastack) > _MAX_DEPTH:
                    raise Unsafe("it is nested deeper than a shard")
                if code == b"s" or code == b"u":
                    self._check_keys(*((self.stack[-3], self.stack[-2:-1]) if code == b"s" else self._items()))
                handler(self)
        except pickle._Stop as end:  # pyrefly: ignore[missing-attribute]
            return end.value
        raise Unsafe("it cannot be read: it ends too early")

    def find_class(self, module: str, name: str) -> object:
        if (known := self._names.get((module, name))) is None:
            raise Unsafe(f"it asks for {_shown(module)}.{_shown(name)}, which a shard never needs")
        return known

    def _check_keys(self, target: object, keys: list) -> None:
        """Keys with equal hashes cost quadratic time. Small numbers and text have different hashes."""
        if type(target) is not dict or not all(type(key) is str or _is_number(key) for key in keys):
            raise Unsafe("it has a key that is neither a small number nor text")

    def _load_text(self, width: int, decode: Callable[[bytes], str | int]) -> None:
        size = int.from_bytes(self.read(width), "little")
        if size > _MAX_TEXT_BYTES:
            raise Unsafe(f"it has a text or a number of {size} bytes; the limit is {_MAX_TEXT_BYTES}")
        value = decode(self.read(size))
        self._value_bytes -= max(0, sys.getsizeof(value) - _OPCODE_BYTES)
        self.append(value)

    def _load_bytes(self, width: int) -> None:
        """Reads in pieces, because one read allocates the size that the pickle states."""
        size = int.from_bytes(self.read(width), "little")
        self._array_bytes -= size
        if self._array_bytes < 0:
            raise Unsafe("its arrays are larger than those of a shard of its size")
        data = bytearray()
        while len(data) < size:
            if not (piece := self.read(min(size - len(data), _PIECE_BYTES))):
                raise Unsafe("it cannot be read: it ends too early")
            data += piece
        self.append(bytes(data) if size <= _MAX_NAME_BYTES else data)

    def _items(self) -> tuple[object, list]:
        return self.metastack[-1][-1], self.stack[::2]

    def _reconstruct(self, subtype: object = None, *_: object) -> ArrayStub:
        if subtype is not self._ndarray:
            raise Unsafe("it makes an object that is not an array")
        return ArrayStub(self._array)

    def _from_buffer(self, data: object, dtype: object, shape: object, order: object) -> ArrayStub:
        taken = ArrayStub(self._array)
        taken.__setstate__((1, shape, dtype, order == "F", data))
        return taken

    def _array(self, shape: Any, dtype: Any, is_fortran: Any, data: Any) -> object:
        if type(dtype) is not _Dtype or type(data) not in (bytes, bytearray) or type(shape) is not tuple:
            raise Unsafe("it has an array that is not of float32 or float16")
        if not all(type(size) is int and size >= 0 for size in shape) or 0 in shape[1:]:
            raise Unsafe(f"it has an array of shape {', '.join(map(_shown, shape[:8]))}")
        array = np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if is_fortran else "C")
        return self._take(self._layer(), array)

    def _layer(self) -> object:
        """The key in the outermost dict of the list that is being read: one of the last two values of a stack frame."""
        for frame in (*self.metastack, self.stack):
            for position in range(len(frame) - 1, max(len(frame) - 3, 0), -1):
                if type(frame[position]) is list:
                    return frame[position - 1]
        return None


class _TorchUnpickler(_CheckedUnpickler):
    """Reads data.pkl of `torch.save`. A tensor becomes [storage class, key, offset, shape, strides]."""

    def __init__(self, file: Any):
        super().__init__(file, lambda layer, array: array, 0, 1 << 22)
        self._names: dict = {("torch", name): name for name in ("FloatStorage", "HalfStorage", "BFloat16Storage")}
        self._names["torch._utils", "_rebuild_tensor_v2"] = _Name(lambda storage, *facts: [*storage[:2], *facts[:3]])
        self._names["collections", "OrderedDict"] = _Name(lambda *_: {})
        # A storage is ("storage", class, key, device, count).
        self._handlers = _HANDLERS | {pickle.BINPERSID[0]: lambda self: self.append(self.stack.pop()[1:3])}


def load_torch(file: IO[bytes]) -> dict[str, list]:
    """The vectors and matrices of data.pkl in a file of `torch.save`. A damaged pickle can raise any error."""
    tensors: Any = _TorchUnpickler(_Source(file, _BUFFER_BYTES)).load()  # pyrefly: ignore[bad-argument-type]
    for kind, key, offset, shape, strides in tensors.values():
        is_matrix = type(kind) is type(key) is str and len(shape) == len(strides) <= 2
        if not is_matrix or not all(type(n) is int and 0 <= n < 1 << 40 for n in (offset, *shape, *strides)):
            raise Unsafe("it has a tensor of another shape than an autoencoder")
    return tensors


def _text(data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


_HANDLERS: dict[int, Callable] = {
    **{code: pickle._Unpickler.dispatch[code] for code in _PLAIN},  # pyrefly: ignore
    # A frame only tells a reader how much to read at once, so its bytes are read like all others.
    pickle.FRAME[0]: lambda self: self.read(8),
    **{code: partial(_CheckedUnpickler._load_bytes, width=width) for code, width in _BYTES.items()},
    **{code: partial(_CheckedUnpickler._load_text, width=width, decode=_text) for code, width in _TEXTS.items()},
    **{
        code: partial(_CheckedUnpickler._load_text, width=width, decode=pickle.decode_long)
        for code, width in _INTEGERS.items()
    },
}


def _is_number(key: object) -> bool:
    return type(key) is int and abs(key) < _MAX_KEY


def _shown(value: object) -> str:
    """A value as errors show it. A container shows only its type: a tuple may repeat one value 2^40 times."""
    return str(value)[:100] if type(value) in (str, int) else f"a {type(value).__name__}"
