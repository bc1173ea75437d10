"""Reads the seeds' pickles without running them: plain values and arrays of fp32 or fp16, nothing else.

The standard library's Unpickler in Python, not in C: the one in C hides its stack, and allocates what a pickle states.
"""

import gzip
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from .errors import Unsafe

Take = Callable[[object, np.ndarray], object]

# An opcode costs up to 100 bytes of memory. Each row of a shard packs to more bytes than it has opcodes.
FREE_OPCODES, OPCODES_PER_PACKED_BYTE = 200_000, 16
_MAX_DEPTH, _MAX_KEY = 100, 1 << 31
_MAX_NAME_BYTES, _PIECE_BYTES = 200, 1 << 24
_DTYPES = {"f4": np.dtype("<f4"), "<f4": np.dtype("<f4"), "f2": np.dtype("<f2"), "<f2": np.dtype("<f2")}
# In the order of pickle.py: protocol, frame; containers; their changes; constants, numbers; text; bytes; memo; names.
_OPCODES = b"\x80\x95.(}])t\x85\x86\x87aesuN\x88\x89JKM\x8aG\x8cX\x8dCB\x8e\x96qr\x94hjc\x93Rb"
_STEPS: dict[int, Callable] = {code: pickle._Unpickler.dispatch[code] for code in _OPCODES}  # pyright: ignore
# A bytearray is read as bytes: the step of its own opcode allocates the stated size first.
_STEPS[pickle.BYTEARRAY8[0]] = _STEPS[pickle.BINBYTES8[0]]


def load_shard(
    file: BinaryIO, max_bytes: int, take: Take = lambda layer, array: array, max_opcodes: int = FREE_OPCODES
) -> object:
    """The values of a gzipped pickle; raises Unsafe unless they are plain values and arrays of fp32 or fp16.

    max_bytes: the limit of the decompressed pickle. take(layer, array): called for each array, so that a caller keeps
    only the arrays that it needs; `layer` is the key of the array. A Taken with its result replaces the array.
    """
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            machine = _Machine(_Limited(unpacked, max_bytes), take, max_opcodes)
            try:
                value = machine.load()
                if unpacked.read(1):  # a read at the end compares gzip's checksum
                    raise Unsafe("it goes on after its end")
                return value
            finally:
                vars(machine).clear()  # the memo refers to the machine, and to every value
    except Unsafe:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise Unsafe(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


class _Limited:
    """A reader that refuses to return more than `left` bytes: a small gzip file can hold terabytes."""

    def __init__(self, file: gzip.GzipFile, left: int):
        self._file, self._left = file, left

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, piece by piece, because one read allocates all that the pickle asks for."""
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
    """Keeps no bytes of an array: no opcode refers to them again."""

    def __setitem__(self, number: int, value: object) -> None:
        super().__setitem__(number, None if type(value) is bytes and len(value) > _MAX_NAME_BYTES else value)


class _Name:
    """A name of numpy, which a pickle can call and cannot change."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable | None = None):
        self._call = call

    def __call__(self, *arguments: object) -> object:
        if self._call is None:
            raise Unsafe("it calls something that is no array")
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise Unsafe("it changes something that is no array")


class _Dtype:
    __slots__ = ("dtype",)

    def __init__(self, code: object = None, *_: object):
        if type(code) is not str or code not in _DTYPES:
            raise Unsafe(f"it has an array of {_shown(code)}, not of float32 or float16")
        self.dtype = _DTYPES[code]

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise Unsafe("it has an array of another byte order than ours")


class Taken:
    """The replacement of an array; `is_made` once the pickle has given its values."""

    __slots__ = ("_make", "is_made", "value")

    def __init__(self, make: Callable):
        self._make, self.is_made, self.value = make, False, None

    def __setstate__(self, state: Any) -> None:
        if self.is_made:
            raise Unsafe("it changes an array")
        _, shape, dtype, is_fortran, data = state
        self.value, self.is_made = self._make(shape, dtype, is_fortran, data), True
        del self._make


class _Machine(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage]
    """Steps through a pickle, and looks at each opcode before its step."""

    stack: list
    metastack: list[list]

    def __init__(self, file: Any, take: Take, max_opcodes: int):
        super().__init__(file)
        self.memo = _Memo()
        self._take, self._left = take, max_opcodes
        self._ndarray = _Name()

    @property
    def dispatch(self) -> "_Machine":  # pyright: ignore
        """The table of steps, as `load` asks for it."""
        return self

    def __getitem__(self, opcode: int) -> Callable:
        self._left -= 1
        if self._left < 0:
            raise Unsafe("it has more values, or more lists, tuples and dicts than a shard of its size")
        if opcode not in _STEPS:
            raise Unsafe(f"it has the opcode {bytes([opcode])!r}, which a shard never needs")
        if len(self.metastack) > _MAX_DEPTH:
            raise Unsafe("it is nested deeper than a shard")
        if opcode in b"su":
            target, keys = (self.stack[-3], self.stack[-2:-1]) if opcode in b"s" else self._items()
            # Keys that collide cost the square of their count: small numbers and text do not.
            if type(target) is not dict or not all(type(key) is str or _is_number(key) for key in keys):
                raise Unsafe("it has a key that is neither a small number nor text")
        return _STEPS[opcode]

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
            raise Unsafe("it makes something else than an array")
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
        """The key in the outermost dict whose list is read now: the list is the last value of a frame, or its entry."""
        for frame in (*self.metastack, self.stack):
            for position in range(len(frame) - 1, max(len(frame) - 3, 0), -1):
                if type(frame[position]) is list:
                    return frame[position - 1]
        return None


def _is_number(key: object) -> bool:
    return type(key) is int and abs(key) < _MAX_KEY


def _shown(value: object) -> str:
    """A value as errors show it, without the inside of a container: a tuple may hold itself 2^40 times."""
    return str(value)[:100] if type(value) in (str, int) else f"a {type(value).__name__}"
