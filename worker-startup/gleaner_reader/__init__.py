"""Reads the activations that Gleaner stores, by layer, by sample or as shuffled batches, from a disk or a bucket.

run = gleaner_reader.open("gs://my-bucket/activations/my-run")
for array in run.layer(12): ...
"""

from . import export
from .batches import Batches
from .errors import MissingPackage, ShardError
from .files import open_file, open_folder
from .formats import FORMATS, open_shard
from .index import Index
from .layer import Layer
from .run import Run, Sample, open_run
from .shard import Shard
from .shards import Shards
from .status import Status

__version__ = "0.1.0"
__all__ = [
    "Batches",
    "Index",
    "Layer",
    "MissingPackage",
    "Run",
    "Sample",
    "Shard",
    "ShardError",
    "Shards",
    "Status",
    "export",
    "open",
]


def open(where: str) -> Run | Shard:
    """Opens a run by its folder (`activations/RUN`, or the `tpu_N` of one stream), or one shard by its file.

    where: a path of this machine, or gs://BUCKET/…. Raises FileNotFoundError, ShardError or MissingPackage. Warns when
    the run is not complete.
    """
    where = str(where).rstrip("/")
    if where.endswith(tuple(f".{name}" for name in FORMATS)):
        return open_shard(open_file(where))
    return open_run(open_folder(where))
