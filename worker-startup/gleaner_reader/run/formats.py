"""The formats of shards, and the class that reads each."""

from collections.abc import Callable

from ..format.errors import ShardError
from ..format.seekable import File
from .pickle_shard import PickleShard
from .shard import Shard
from .tensor_shard import SafetensorsShard

FORMATS = ("safetensors", "safetensors.zst", "pkl.gz")


class _Ranged:
    """A File over a function that reads ranges."""

    def __init__(self, url: str, size: int, read: Callable[[int, int], bytes]):
        self.url, self.size, self._read = url, size, read

    def read(self, begin: int, end: int) -> bytes:
        data = self._read(begin, end)
        if len(data) != end - begin:
            raise ShardError(f"{self.url} cannot be read: it ends before byte {end}")
        return data


def read_facts(read: Callable[[int, int], bytes], size: int, file_format: str) -> dict:
    """What metadata.json repeats of the header of a shard of `size` bytes: `stats`, and in safetensors its layout.

    read(begin, end): returns those bytes of the shard; called one to three times for few bytes. Raises ShardError.
    """
    shard = open_shard(_Ranged(f"the shard.{file_format}", size, read))
    return {"stats": shard.stats} | shard.layout


def open_shard(file: File) -> Shard:
    """Opens a shard by the ending of its name. Raises ValueError for any other ending."""
    if file.url.endswith((".safetensors", ".safetensors.zst")):
        return SafetensorsShard(file)
    if file.url.endswith(".pkl.gz"):
        return PickleShard(file)
    raise ValueError(f"Failed to open {file.url}: shards are named {', '.join(f'*.{name}' for name in FORMATS)}")
