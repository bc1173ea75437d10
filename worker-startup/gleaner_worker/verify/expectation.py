"""The expected properties of the shards of a run."""

from dataclasses import dataclass

from ..records.samples import Reader
from .shard_content import Wanted


@dataclass(frozen=True)
class Expectation:
    run: str
    spec_hash: str
    wanted: Wanted
    reader: Reader
    fingerprint: str | None  # of the run's model, where model.json states it

    def line_of(self, sample: int) -> int:
        """The number of the line, from 1, that a sample comes from."""
        return sample // self.reader.samples_per_line + 1

    def where(self, sample: int) -> str:
        """The place of a sample in its stream, as problems name it."""
        line = f"at line {self.line_of(sample)}"
        return line if self.reader.samples_per_line == 1 else f"{line} (sample {sample})"
