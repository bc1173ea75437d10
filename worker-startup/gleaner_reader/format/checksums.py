"""CRC-32C as Cloud Storage writes it."""

import base64
import ctypes
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

import google_crc32c
import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed (RFC 3720, appendix B.4)
# Bytes of one call: google_crc32c holds the interpreter's lock until it returns.
_PIECE_BYTES = 1 << 22


def crc32c(data) -> int:
    """The checksum of a bytes-like object."""
    return extend(0, data)


def extend(checksum: int, data) -> int:
    """The checksum of data of that checksum and more data after it."""
    view = np.frombuffer(data, np.uint8)
    for begin in range(0, len(view), _PIECE_BYTES):
        checksum = _extension()(checksum, view[begin : begin + _PIECE_BYTES])
    return checksum


@lru_cache(maxsize=1)
def _extension() -> Callable[[int, np.ndarray], int]:
    """The function of google_crc32c, called without the interpreter's lock where its library has the function.

    With the lock, the checksums of a host's shards take turns, and every other thread waits for them.
    """
    try:
        native = ctypes.CDLL(import_module("google_crc32c._crc32c").__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):  # an installation without native code, or with another name
        return google_crc32c.extend
    native.restype, native.argtypes = ctypes.c_uint32, [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t]
    return lambda checksum, view: native(checksum, view.ctypes.data, view.nbytes)


def as_text(checksum: int) -> str:
    """The checksum as Cloud Storage writes it: base64 of its four bytes, big endian."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def combine(first: int, second: int, second_size: int) -> int:
    """The checksum of two pieces of data in sequence, from the checksum of each piece and the size of the second.

    A shard's tensors are read once: the checksum of the shard follows from the checksums of the tensors.
    """
    return _multiply(_power(8 * second_size), first) ^ second


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials modulo Castagnoli's, bits reversed: the highest bit is x^0."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=256)
def _power(n: int) -> int:
    """x^n modulo the polynomial."""
    result, square = 1 << 31, 1 << 30
    while n:
        if n & 1:
            result = _multiply(square, result)
        square = _multiply(square, square)
        n >>= 1
    return result
