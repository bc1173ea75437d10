"""The stack and the bytes of a pickle that is read, both bounded by the size of the file.

A pickle states sizes and counts as it likes; nothing is allocated before the file has shown that many bytes.
"""

import io
import struct
from collections.abc import Iterator
from typing import Protocol

from .errors import Unsafe

MAX_NAME_BYTES = 200
_MAX_DEPTH = 100
_PIECE_BYTES = 1 << 24
# A container is one byte in a pickle and many bytes in memory: a shard has few containers for its size.
_BYTES_PER_CONTAINER, _FREE_CONTAINERS = 8, 1000


class Meter(Protocol):
    """The bytes that were read so far, and the bytes that may still be read."""

    given: int
    left: int


class PickleStack:
    """pickle's stack as frames: the first frame, and a frame from each mark on."""

    def __init__(self, file: io.BufferedReader, meter: Meter):
        self._file, self._meter = file, meter
        self._frames: list[list] = [[]]
        self._memo: dict[int, object] = {}
        self._containers = 0

    @property
    def _stack(self) -> list:
        return self._frames[-1]

    def _read(self, size: int) -> bytes:
        if size > self._meter.left + self._meter.given:
            raise Unsafe("it is larger than its metadata says")
        data = self._file.read(size) if size <= _PIECE_BYTES else b"".join(self._pieces(size))
        if len(data) != size:
            raise Unsafe("it cannot be read: it ends too early")
        return data

    def _pieces(self, size: int) -> Iterator[bytes]:
        """Yields a large value piece by piece, because one read allocates all that the pickle asks for."""
        for begin in range(0, size, _PIECE_BYTES):
            piece = self._file.read(min(_PIECE_BYTES, size - begin))
            if not piece:
                return
            yield piece

    def _number(self, form: str) -> int:
        return struct.unpack(form, self._read(struct.calcsize(form)))[0]

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _container(self, value: object) -> None:
        self._containers += 1
        if (self._containers - _FREE_CONTAINERS) * _BYTES_PER_CONTAINER > self._meter.given:
            raise Unsafe("it has more lists, tuples and dicts than a shard of its size")
        self._push(value)

    def _mark(self) -> None:
        self._frames.append([])
        if len(self._frames) > _MAX_DEPTH:
            raise Unsafe("it is nested deeper than a shard")

    def _to_mark(self) -> list:
        if len(self._frames) < 2:
            raise Unsafe("it cannot be read: a mark is missing")
        return self._frames.pop()

    def _tuple(self, count: int) -> None:
        stack = self._stack
        if len(stack) < count:
            raise Unsafe("it cannot be read: a value is missing")
        values = tuple(stack[len(stack) - count :])
        del stack[len(stack) - count :]
        self._container(values)

    def _append(self, values: list) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise Unsafe("it appends to something that is no list")
        target.extend(values)

    def _set(self, values: list) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise Unsafe("it sets items of something that is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (int, str):
                raise Unsafe("it has a key that is neither a number nor text")
            target[key] = value

    def _pop(self) -> object:
        return self._stack.pop()
