"""CRC-32C as Cloud Storage writes it: by google-crc32c where that is installed, otherwise by numpy."""

import base64
from functools import lru_cache

import numpy as np

try:
    import google_crc32c
except ImportError:
    google_crc32c = None

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed (RFC 3720, appendix B.4)
# Bytes of one call: a native call may hold the interpreter's lock until it returns.
_PIECE = 1 << 22
_LANE = 1 << 10


def crc32c(data) -> int:
    """The checksum of a bytes-like object."""
    view = np.frombuffer(data, np.uint8)
    checksum = 0
    for begin in range(0, len(view), _PIECE):
        piece = view[begin : begin + _PIECE]
        if google_crc32c:
            checksum = google_crc32c.extend(checksum, piece)
        else:
            checksum = combine(checksum, crc32c_by_numpy(piece), len(piece))
    return checksum


def as_text(checksum: int) -> str:
    """Base64 of its four bytes, big endian."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def combine(first: int, second: int, second_size: int) -> int:
    """The checksum of two pieces together, from the checksums of both."""
    return _multiply(_power(8 * second_size), first) ^ second


def crc32c_by_numpy(data: np.ndarray) -> int:
    """uint8 [n]. Computes many lanes of the data side by side, two bytes at a step, and combines them at the end."""
    lanes = len(data) // _LANE
    checksum = 0
    if lanes:
        words = np.ascontiguousarray(data[: lanes * _LANE].view("<u2").reshape(lanes, -1).T)
        state = np.full(lanes, 0xFFFFFFFF, np.uint32)
        table = _table()
        for column in words:
            state = table[(state ^ column) & 0xFFFF] ^ (state >> 16)
        checksum = _join(state ^ np.uint32(0xFFFFFFFF))
    rest = data[lanes * _LANE :].tobytes()
    state, table = 0xFFFFFFFF, _bytes_table()
    for byte in rest:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return combine(checksum, state ^ 0xFFFFFFFF, len(rest))


def _join(checksums: np.ndarray) -> int:
    """uint32 [lanes], the checksums of neighbouring lanes -> the checksum of all: pairs combine until one is left."""
    size, tail, tail_size = _LANE, 0, 0
    while len(checksums) > 1:
        if len(checksums) % 2:
            tail, tail_size = combine(int(checksums[-1]), tail, tail_size), tail_size + size
        even, odd = checksums[: len(checksums) // 2 * 2].reshape(-1, 2).T
        checksums = _multiply_all(_power(8 * size), even) ^ odd
        size *= 2
    return combine(int(checksums[0]), tail, tail_size)


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials modulo ours, bits reversed: the highest bit is x^0."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _multiply_all(a: int, b: np.ndarray) -> np.ndarray:
    product = np.zeros_like(b)
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ ((b & 1) * np.uint32(_POLYNOMIAL))
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


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    """uint32 [65536]: the change of the checksum for each pair of bytes."""
    state = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(16):
        state = (state >> 1) ^ ((state & 1) * np.uint32(_POLYNOMIAL))
    return state


@lru_cache(maxsize=1)
def _bytes_table() -> list[int]:
    state = np.arange(1 << 8, dtype=np.uint32)
    for _ in range(8):
        state = (state >> 1) ^ ((state & 1) * np.uint32(_POLYNOMIAL))
    return state.tolist()
