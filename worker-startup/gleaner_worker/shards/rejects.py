"""rejects.jsonl: the lines of a stream that are not stored, each with its reason."""

import json
import os
from collections.abc import Iterable, Iterator

from ..disk import writing
from ..records.sample import Reject, Sample


class RejectsFile:
    """Collects the rejects of one stream on this machine's disk, because a stream may have any number of them."""

    def __init__(self, folder: str):
        self.path = os.path.join(folder, "rejects.jsonl")

    def note(self, items: Iterable[Sample | Reject]) -> Iterator[Sample | Reject]:
        """Passes the items on, and writes the rejects among them to the file."""
        with writing(self.path), open(self.path, "w", encoding="ascii") as file:
            for item in items:
                if isinstance(item, Reject):
                    file.write(json.dumps(item.record()) + "\n")
                yield item


def same_rejects(mine: bytes, theirs: bytes) -> bool:
    """Whether the same lines are rejected. Other software may give another reason."""
    try:
        return _rejected(mine) == _rejected(theirs)
    except (ValueError, AttributeError, RecursionError):
        return False


def _rejected(text: bytes) -> list[dict]:
    return [{key: value for key, value in json.loads(line).items() if key != "reason"} for line in text.splitlines()]
