"""A pickle machine of our own, because Python's machine calls every name that a pickle holds.

This machine knows only the opcodes of plain values. For a few names of numpy it makes an array or an array's type
itself. Other names are refused, and nothing is called.
"""

import io
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from .errors import Unsafe
from .pickle_stack import MAX_NAME_BYTES, Meter, PickleStack

Take = Callable[[object, np.ndarray], object]

_DTYPES = {"f4": np.dtype("<f4"), "<f4": np.dtype("<f4"), "f2": np.dtype("<f2"), "<f2": np.dtype("<f2")}
_ARRAY, _DTYPE, _RECONSTRUCT, _FROM_BUFFER = "an array's class", "dtype", "reconstruct", "frombuffer"
_KNOWN = {
    ("numpy", "ndarray"): _ARRAY,
    ("numpy", "dtype"): _DTYPE,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
}


class _Global:
    """A name in the pickle; the machine never calls it."""

    def __init__(self, kind: str):
        self.kind = kind


class _Pending:
    """An array between its two opcodes, and its replacement afterwards."""

    is_made = False
    value: object = None


class Machine(PickleStack):
    """Runs a pickle. take(layer, array): called for each array; its result takes the array's place."""

    def __init__(self, file: io.BufferedReader, meter: Meter, take: Take):
        super().__init__(file, meter)
        self._take = take

    def run(self) -> object:
        while True:
            opcode = self._read(1)
            if opcode == b".":
                (result,) = self._stack
                return result
            action = _ACTIONS.get(opcode)
            if action is None:
                raise Unsafe(f"it has the opcode {opcode!r}, which a shard never needs")
            action(self)

    def _long(self) -> None:
        self._push(int.from_bytes(self._read(self._number("<B")), "little", signed=True))

    def _text(self, form: str) -> None:
        self._push(self._read(self._number(form)).decode("utf-8", "surrogatepass"))

    def _remember(self, number: int) -> None:
        value = self._stack[-1]
        # The memo keeps no bytes of an array: no opcode refers to them again.
        self._memo[number] = None if type(value) is bytes and len(value) > MAX_NAME_BYTES else value

    def _recall(self, number: int) -> None:
        value = self._memo[number]
        self._push(value.value if isinstance(value, _Pending) and value.is_made else value)

    def _global_by_lines(self) -> None:
        module, name = (self._file.readline(MAX_NAME_BYTES)[:-1].decode() for _ in range(2))
        self._name(module, name)

    def _global_by_stack(self) -> None:
        name, module = self._pop(), self._pop()
        self._name(module, name)

    def _name(self, module: object, name: object) -> None:
        if type(module) is not str or type(name) is not str or (module, name) not in _KNOWN:
            raise Unsafe(f"it asks for {_shown(module)}.{_shown(name)}, which a shard never needs")
        self._push(_Global(_KNOWN[module, name]))

    def _reduce(self) -> None:
        arguments, asked = self._pop(), self._pop()
        kind = asked.kind if isinstance(asked, _Global) else None
        if type(arguments) is not tuple:
            raise Unsafe("it calls something without a tuple of arguments")
        if kind == _RECONSTRUCT:
            if not arguments or not isinstance(arguments[0], _Global) or arguments[0].kind != _ARRAY:
                raise Unsafe("it makes something else than an array")
            self._push(_Pending())
        elif kind == _DTYPE:
            code = arguments[0] if arguments else None
            if type(code) is not str or code not in _DTYPES:
                raise Unsafe(f"it has an array of {_shown(code)}, not of float32 or float16")
            self._push(_DTYPES[code])
        elif kind == _FROM_BUFFER:
            data, dtype, shape, order = arguments
            self._push(self._array(shape, dtype, order == "F", data))
        else:
            raise Unsafe("it calls something that is no array")

    def _build(self) -> None:
        state, target = self._pop(), self._stack[-1]
        if isinstance(target, np.dtype):
            if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", "|", "="):
                raise Unsafe("it has an array of another byte order than ours")
        elif isinstance(target, _Pending):
            _, shape, dtype, is_fortran, data = cast(tuple, state)
            target.value = self._stack[-1] = self._array(shape, dtype, is_fortran, data)
            target.is_made = True
        else:
            raise Unsafe("it changes something that is no array")

    def _array(self, shape: Any, dtype: Any, is_fortran: Any, data: Any) -> object:
        if not isinstance(dtype, np.dtype) or type(data) not in (bytes, bytearray) or type(shape) is not tuple:
            raise Unsafe("it has an array that is not of float32 or float16")
        if not all(type(size) is int and size >= 0 for size in shape) or 0 in shape[1:]:
            raise Unsafe(f"it has an array of shape {', '.join(map(_shown, shape[:8]))}")
        array = np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
        return self._take(self._layer(), array)

    def _layer(self) -> object:
        """The key in the outermost dict whose value is read now."""
        for frame in self._frames:
            for position in range(len(frame) - 1, 0, -1):
                if type(frame[position]) is list:
                    return frame[position - 1]
        return None


def _shown(value: object) -> str:
    """A value as errors show it, without the inside of a container: a tuple may hold itself 2^40 times."""
    return str(value)[:100] if type(value) in (str, int) else f"a {type(value).__name__}"


_ACTIONS: dict[bytes, Callable[[Machine], object]] = {
    b"\x80": lambda m: m._read(1),  # the protocol
    b"\x95": lambda m: m._read(8),  # a frame
    b"(": Machine._mark,
    b"}": lambda m: m._container({}),
    b"]": lambda m: m._container([]),
    b")": lambda m: m._container(()),
    b"t": lambda m: m._container(tuple(m._to_mark())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"a": lambda m: m._append([m._pop()]),
    b"e": lambda m: m._append(m._to_mark()),
    b"s": lambda m: m._set([m._pop(), m._pop()][::-1]),
    b"u": lambda m: m._set(m._to_mark()),
    b"N": lambda m: m._push(None),
    b"\x88": lambda m: m._push(True),
    b"\x89": lambda m: m._push(False),
    b"J": lambda m: m._push(m._number("<i")),
    b"K": lambda m: m._push(m._number("<B")),
    b"M": lambda m: m._push(m._number("<H")),
    b"\x8a": Machine._long,
    b"G": lambda m: m._push(m._number(">d")),
    b"\x8c": lambda m: m._text("<B"),
    b"X": lambda m: m._text("<I"),
    b"\x8d": lambda m: m._text("<Q"),
    b"C": lambda m: m._push(m._read(m._number("<B"))),
    b"B": lambda m: m._push(m._read(m._number("<I"))),
    b"\x8e": lambda m: m._push(m._read(m._number("<Q"))),
    b"\x96": lambda m: m._push(bytearray(m._read(m._number("<Q")))),
    b"q": lambda m: m._remember(m._number("<B")),
    b"r": lambda m: m._remember(m._number("<I")),
    b"\x94": lambda m: m._remember(len(m._memo)),
    b"h": lambda m: m._recall(m._number("<B")),
    b"j": lambda m: m._recall(m._number("<I")),
    b"c": Machine._global_by_lines,
    b"\x93": Machine._global_by_stack,
    b"R": Machine._reduce,
    b"b": Machine._build,
}
