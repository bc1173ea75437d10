"""Reads the activations that Gleaner stores, by layer, by sample or as shuffled batches, from a disk or a bucket.

run = gleaner_reader.open("gs://my-bucket/activations/my-run")
for array in run.layer(12): ...
"""

from . import export
from .format.errors import MissingPackage, ShardError
from .format.files import open_file, open_folder
from .format.index import Index
from .run.formats import FORMATS, open_shard
from .run.layer import Layer
from .run.run import Run, Sample, open_run
from .run.shard import Shard
from .run.shards import Shards
from .run.status import Status
from .shuffle.batches import Batches

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
