"""The formats of shards, and the class that reads each."""

from ..format.seekable import File
from .pickle_shard import PickleShard
from .shard import Shard
from .tensor_shard import SafetensorsShard

FORMATS = ("safetensors", "safetensors.zst", "pkl.gz")


def open_shard(file: File) -> Shard:
    """Opens a shard by the ending of its name. Raises ValueError for any other ending."""
    if file.url.endswith((".safetensors", ".safetensors.zst")):
        return SafetensorsShard(file)
    if file.url.endswith(".pkl.gz"):
        return PickleShard(file)
    raise ValueError(f"Failed to open {file.url}: shards are named {', '.join(f'*.{name}' for name in FORMATS)}")
