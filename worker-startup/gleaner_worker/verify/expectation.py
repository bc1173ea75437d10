"""The expected properties of the shards of a run."""

from dataclasses import dataclass

from ..records.reader import Reader
from .shard_content import Wanted


@dataclass(frozen=True)
class Expectation:
    """The expected metadata (run, spec_hash, fingerprint) and content; `reader` makes the expected samples."""

    run: str
    spec_hash: str
    wanted: Wanted
    reader: Reader
    fingerprint: str | None  # of the run's model, where model.json states it
