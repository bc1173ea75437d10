"""Reads the pickle of a pkl.gz shard without running it: plain values and arrays of fp32 or fp16, nothing else.

Uses the standard library's Unpickler in Python: the C version hides its stack and allocates any stated size.
"""

import gzip
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from .errors import Unsafe

Take = Callable[[object, np.ndarray], object]

# An opcode costs up to 100 bytes of memory. A row of a shard has more compressed bytes than opcodes.
FREE_OPCODES, OPCODES_PER_PACKED_BYTE = 200_000, 16
_MAX_DEPTH, _MAX_KEY = 100, 1 << 31
_MAX_NAME_BYTES, _PIECE_BYTES = 200, 1 << 24
_DTYPES = {"f4": np.dtype("<f4"), "<f4": np.dtype("<f4"), "f2": np.dtype("<f2"), "<f2": np.dtype("<f2")}
# In the order of pickle.py: protocol, frame; containers; their changes; constants, numbers; text; bytes; memo; names.
_OPCODES = b"\x80\x95.(}])t\x85\x86\x87aesuN\x88\x89JKM\x8aG\x8cX\x8dCB\x8e\x96qr\x94hjc\x93Rb"
_HANDLERS: dict[int, Callable] = {code: pickle._Unpickler.dispatch[code] for code in _OPCODES}  # pyright: ignore
# A bytearray is read as bytes: the handler of its opcode allocates the stated size first.
_HANDLERS[pickle.BYTEARRAY8[0]] = _HANDLERS[pickle.BINBYTES8[0]]


def load_shard(
    file: BinaryIO, max_bytes: int, take: Take = lambda layer, array: array, max_opcodes: int = FREE_OPCODES
) -> object:
    """The values of a gzipped pickle. Raises Unsafe unless they are plain values and arrays of fp32 or fp16.

    max_bytes: limit of the decompressed pickle. max_opcodes: limit of its opcodes. take(layer, array): called for each
    array, so that a caller keeps only the arrays that it needs. `layer` is the key of the array in the outermost dict.
    A Taken with the result of take replaces the array.
    """
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            unpickler = _CheckedUnpickler(_Limited(unpacked, max_bytes), take, max_opcodes)
            try:
                value = unpickler.load()
                if unpacked.read(1):  # at the end, this read also compares gzip's checksum
                    raise Unsafe("it has data after its end")
                return value
            finally:
                vars(unpickler).clear()  # frees the values, which the memo and reference cycles hold
    except Unsafe:
        raise
    except Exception as error:  # a damaged pickle can raise any error
        raise Unsafe(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


class _Limited:
    """Reads at most `left` bytes, because a small gzip file can hold terabytes."""

    def __init__(self, file: gzip.GzipFile, left: int):
        self._file, self._left = file, left

    def read(self, size: int) -> bytes:
        """Reads exactly `size` bytes, in pieces, because one read allocates the size that the pickle states."""
        if size > self._left:
            raise Unsafe("it is larger than its metadata says")
        self._left -= size
        pieces = []
        while size:
            if not (piece := self._file.read(min(size, _PIECE_BYTES))):
                raise Unsafe("it cannot be read: it ends too early")
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readline(self) -> bytes:
        return self._file.readline(_MAX_NAME_BYTES)


class _Memo(dict):
    """A memo without the bytes of arrays: no opcode refers to them again."""

    def __setitem__(self, number: int, value: object) -> None:
        super().__setitem__(number, None if type(value) is bytes and len(value) > _MAX_NAME_BYTES else value)


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


class Taken:
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


class _CheckedUnpickler(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage]
    """Checks each opcode before its handler runs."""

    stack: list
    metastack: list[list]

    def __init__(self, file: Any, take: Take, max_opcodes: int):
        super().__init__(file)
        self.memo = _Memo()
        self._take, self._left = take, max_opcodes
        self._ndarray = _Name()

    @property
    def dispatch(self) -> "_CheckedUnpickler":  # pyright: ignore
        """The table of handlers that `load` reads; __getitem__ checks the opcode."""
        return self

    def __getitem__(self, opcode: int) -> Callable:
        self._left -= 1
        if self._left < 0:
            raise Unsafe("it has more values, or more lists, tuples and dicts than a shard of its size")
        if opcode not in _HANDLERS:
            raise Unsafe(f"it has the opcode {bytes([opcode])!r}, which a shard never needs")
        if len(self.metastack) > _MAX_DEPTH:
            raise Unsafe("it is nested deeper than a shard")
        if opcode in b"su":
            target, keys = (self.stack[-3], self.stack[-2:-1]) if opcode in b"s" else self._items()
            # Keys with equal hashes cost quadratic time. Small numbers and text have different hashes.
            if type(target) is not dict or not all(type(key) is str or _is_number(key) for key in keys):
                raise Unsafe("it has a key that is neither a small number nor text")
        return _HANDLERS[opcode]

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("numpy", "ndarray"):
            return self._ndarray
        if (module, name) == ("numpy", "dtype"):
            return _Name(_Dtype)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _Name(self._reconstruct)
        if module in ("numpy.core.numeric", "numpy._core.numeric") and name == "_frombuffer":
            return _Name(self._from_buffer)
        raise Unsafe(f"it asks for {_shown(module)}.{_shown(name)}, which a shard never needs")

    def _items(self) -> tuple[object, list]:
        return self.metastack[-1][-1], self.stack[::2]

    def _reconstruct(self, subtype: object = None, *_: object) -> Taken:
        if subtype is not self._ndarray:
            raise Unsafe("it makes an object that is not an array")
        return Taken(self._array)

    def _from_buffer(self, data: object, dtype: object, shape: object, order: object) -> Taken:
        taken = Taken(self._array)
        taken.__setstate__((1, shape, dtype, order == "F", data))
        return taken

    def _array(self, shape: Any, dtype: Any, is_fortran: Any, data: Any) -> object:
        if type(dtype) is not _Dtype or type(data) is not bytes or type(shape) is not tuple:
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


def _is_number(key: object) -> bool:
    return type(key) is int and abs(key) < _MAX_KEY


def _shown(value: object) -> str:
    """A value as errors show it. A container shows only its type: a tuple may repeat one value 2^40 times."""
    return str(value)[:100] if type(value) in (str, int) else f"a {type(value).__name__}"
