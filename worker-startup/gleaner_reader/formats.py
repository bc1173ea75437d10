"""Which files are shards, and how each kind is read."""

from .pickle_shard import PickleShard
from .seekable import File
from .shard import Shard
from .tensor_shard import SafetensorsShard

FORMATS = ("safetensors", "safetensors.zst", "pkl.gz")


def open_shard(file: File) -> Shard:
    """Raises ValueError when the name is that of no format."""
    if file.url.endswith((".safetensors", ".safetensors.zst")):
        return SafetensorsShard(file)
    if file.url.endswith(".pkl.gz"):
        return PickleShard(file)
    raise ValueError(f"Failed to open {file.url}: shards are named {', '.join(f'*.{name}' for name in FORMATS)}")
