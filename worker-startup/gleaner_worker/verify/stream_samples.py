"""The samples and rejects of a stream, made again from its lines, with a mark for each."""

from collections.abc import Iterator

from ..records.samples import Reader, Reject, Sample, count_samples, read_samples
from .marks import BAD, CUT


class StreamSamples:
    """Reads the stream in one pass; a range before the last one starts again from the beginning."""

    def __init__(self, path: str, name: str, reader: Reader):
        self.marks = bytearray(count_samples(path, name, reader))
        self._open = lambda: read_samples(path, name, reader)
        self._items, self._next = self._open(), 0

    def range(self, first: int, last: int) -> dict[int, Sample | Reject]:
        if first < self._next:
            self._items, self._next = self._open(), 0
        wanted = range(first, last + 1)
        return {index: item for item in self._read(last) for index in _covered(item) if index in wanted}

    def read_rest(self) -> None:
        """Reads to the end, so that every reject has its mark."""
        for _ in self._read(len(self.marks) - 1):
            pass

    def _read(self, last: int) -> Iterator[Sample | Reject]:
        while self._next <= last and (item := next(self._items, None)):
            self._next = item.last + 1
            if isinstance(item, Reject):
                for index in _covered(item):
                    self.marks[index] |= BAD
            elif item.truncated:
                self.marks[item.index] |= CUT
            yield item


def _covered(item: Sample | Reject) -> range:
    return range(item.index, item.last + 1)
