"""The metadata of a shard, read without its body."""

from collections.abc import Callable

from .errors import ShardError
from .gzip_header import read_gzip_header
from .safetensors_header import read_safetensors_header
from .seekable import Plain


def is_number(text: str, max_digits: int) -> bool:
    """True for at most `max_digits` ASCII digits: int() refuses digits such as ², and thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= max_digits


def read_metadata(read: Callable[[int, int], bytes], size: int, file_format: str) -> dict[str, str]:
    """The `__metadata__` of a shard of `size` bytes, by one to three small reads. Raises ShardError, a ValueError.

    read(begin, end): returns those bytes of the shard, fewer at its end.
    """
    name = "the shard"
    if file_format == "pkl.gz":
        return read_gzip_header(read, size, name)
    if file_format == "safetensors.zst":
        plain = Plain(_Ranged(name, size, read))
        return read_safetensors_header(plain.read, plain.size, name, plain.first_frame).metadata
    return read_safetensors_header(read, size, name).metadata


class _Ranged:
    """A File over a function that reads ranges."""

    def __init__(self, url: str, size: int, read: Callable[[int, int], bytes]):
        self.url, self.size, self._read = url, size, read

    def read(self, begin: int, end: int) -> bytes:
        data = self._read(begin, end)
        if len(data) != end - begin:
            raise ShardError(f"{self.url} cannot be read: it ends before byte {end}")
        return data
