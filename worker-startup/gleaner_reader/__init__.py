"""Reads the activations that Gleaner stores, by layer, by sample or as shuffled batches, from a disk or a bucket.

run = gleaner_reader.open("gs://my-bucket/activations/my-run")
for array in run.layer(12): ...
"""

from . import export
from .format.errors import MissingPackage, ShardError
from .format.index import Index
from .run.layer import Layer
from .run.opening import open
from .run.run import Run, Sample
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
