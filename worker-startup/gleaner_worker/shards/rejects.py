"""rejects.jsonl: the lines of a stream that are not stored, each with its reason."""

import json
import os
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from ..records.samples.sample import Reject, Sample
from ..storage.disk import writing


class RejectsFile:
    """Collects the rejects of one stream on this machine's disk, because a stream may have any number of them."""

    def __init__(self, folder: str):
        self.path = os.path.join(folder, "rejects.jsonl")

    def note(self, items: Iterable[Sample | Reject]) -> Iterator[Sample | Reject]:
        """Yields every item, and writes the rejects among them to the file."""
        with writing(self.path), open(self.path, "w", encoding="ascii") as file:
            for item in items:
                if isinstance(item, Reject):
                    file.write(json.dumps(item.record()) + "\n")
                yield item


def same_rejects(mine: Iterable[bytes], theirs: Iterable[bytes]) -> bool:
    """Whether the lines of both files reject the same samples. Other software may give another reason.

    Holds one line of each file in memory, because a stream may have 50 million rejects.
    """
    try:
        return all(
            line == other or _rejected(line) == _rejected(other)
            for line, other in zip_longest(mine, theirs, fillvalue=b"")
        )
    except (ValueError, AttributeError, RecursionError):
        return False


def _rejected(line: bytes) -> dict:
    return {key: value for key, value in json.loads(line).items() if key != "reason"}
