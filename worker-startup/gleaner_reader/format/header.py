"""The header of a shard, read without its body."""

import json
from collections.abc import Callable

from .errors import ShardError
from .gzip_header import read_gzip_header
from .safetensors_header import SafetensorsHeader, read_safetensors_header
from .seekable import Plain

_NAME = "the shard"


def is_number(text: str, max_digits: int) -> bool:
    """True for at most `max_digits` ASCII digits: int() refuses digits such as ², and thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= max_digits


def read_metadata(read: Callable[[int, int], bytes], size: int, file_format: str) -> dict[str, str]:
    """The `__metadata__` of a shard of `size` bytes, by one to three small reads. Raises ShardError, a ValueError.

    read(begin, end): returns those bytes of the shard, fewer at its end.
    """
    if file_format == "pkl.gz":
        return read_gzip_header(read, size, _NAME)
    return _read_header(read, size, file_format).metadata


def read_facts(read: Callable[[int, int], bytes], size: int, file_format: str) -> dict:
    """What metadata.json repeats of the header of a shard: `stats`, and in safetensors the place of each tensor."""
    if file_format == "pkl.gz":
        return {"stats": json.loads(read_metadata(read, size, file_format)["stats"])}
    header = _read_header(read, size, file_format)
    return {"stats": json.loads(header.metadata["stats"]), **header.layout}


def _read_header(read: Callable[[int, int], bytes], size: int, file_format: str) -> SafetensorsHeader:
    if file_format == "safetensors.zst":
        plain = Plain(_Ranged(_NAME, size, read))
        return read_safetensors_header(plain.read, plain.size, _NAME, plain.first_frame)
    return read_safetensors_header(read, size, _NAME)


class _Ranged:
    """A File over a function that reads ranges."""

    def __init__(self, url: str, size: int, read: Callable[[int, int], bytes]):
        self.url, self.size, self._read = url, size, read

    def read(self, begin: int, end: int) -> bytes:
        data = self._read(begin, end)
        if len(data) != end - begin:
            raise ShardError(f"{self.url} cannot be read: it ends before byte {end}")
        return data
