"""The samples and rejects that a stream's lines make, with a mark for each sample."""

from array import array
from collections.abc import Iterator

from ..records.lines.stream import count_lines
from ..records.samples.generated import Answers
from ..records.samples.sample import Reject, Sample
from ..records.samples.sample_settings import SampleSettings
from ..records.samples.samples import read_samples
from .marks import REJECTED, TRUNCATED


class StreamSamples:
    """Reads the stream in one pass. A range that begins before the previous range ends starts a new pass."""

    def __init__(self, path: str, name: str, settings: SampleSettings, answers: Answers | None = None):
        self._open = lambda: read_samples(path, name, settings, answers)
        self._per_line = settings.samples_per_line
        # The line of each sample, for runs in which the tokens decide how many samples a line makes.
        self._lines = array("q", (item.line for item in self._open()) if self._per_line is None else ())
        self.marks = bytearray(count_lines(path, name) * self._per_line if self._per_line else len(self._lines))
        self._items, self._next = self._open(), 0

    def line_of(self, sample: int) -> int:
        """The number, from 1, of the line in which a sample begins."""
        return (sample // self._per_line if self._per_line else self._lines[sample]) + 1

    def where(self, sample: int) -> str:
        """The place of a sample in its stream, as problems name it."""
        line = f"at line {self.line_of(sample)}"
        return line if self._per_line == 1 else f"{line} (sample {sample})"

    def range(self, first: int, last: int) -> dict[int, Sample | Reject]:
        """The sample or the reject of each index from `first` to `last`."""
        if first < self._next:
            self._items, self._next = self._open(), 0
        wanted = range(first, last + 1)
        return {index: item for item in self._read(last) for index in _covered(item) if index in wanted}

    def read_rest(self) -> None:
        """Reads the stream to its end, so that every reject has its mark."""
        for _ in self._read(len(self.marks) - 1):
            pass

    def _read(self, last: int) -> Iterator[Sample | Reject]:
        while self._next <= last and (item := next(self._items, None)):
            self._next = item.last + 1
            if isinstance(item, Reject):
                for index in _covered(item):
                    self.marks[index] |= REJECTED
            elif item.truncated:
                self.marks[item.index] |= TRUNCATED
            yield item


def _covered(item: Sample | Reject) -> range:
    return range(item.index, item.last + 1)
