"""The first half of reading samples: the lines of a stream, and the prompts of each."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from .kept_fields import kept_fields
from .parse import parse_line
from .prompts import Prompt, write_prompts
from .reader import Reader
from .reject_reason import RejectReason
from .sample import Reject
from .stream import Line, read_lines

# Tokenising many texts at once uses every core; these two limit the memory of a window.
_WINDOW_ITEMS = 512
_WINDOW_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Written:
    """A prompt before it is tokenised."""

    index: int  # of its sample, where a prompt makes one
    line: int
    prompt: Prompt
    kept: str


Window = list[Written | Reject]


def read_windows(path: str, name: str, reader: Reader) -> Generator[Window]:
    """Reads lines and writes prompts. May run on a thread of its own. `name`: of the object, for messages."""
    window: Window = []
    size = 0
    for line in read_lines(path, name):
        for item in _write(line, reader):
            more = _size(item)
            if window and (len(window) >= _WINDOW_ITEMS or size + more > _WINDOW_BYTES):
                yield window
                window, size = [], 0
            window.append(item)
            size += more
    if window:
        yield window


def _write(line: Line, reader: Reader) -> Iterator[Written | Reject]:
    count = reader.writer.predictions
    first = line.index * count
    record = parse_line(line)
    written = record if isinstance(record, RejectReason) else _write_record(record, reader)
    if isinstance(written, RejectReason):
        yield Reject(first, written.text, line.index, count)
        return
    prompts, kept = written
    for index, prompt in enumerate(prompts, first):
        if isinstance(prompt, RejectReason):
            yield Reject(index, prompt.text, line.index)
        else:
            yield Written(index, line.index, prompt, kept)


def _write_record(record: dict, reader: Reader) -> tuple[Iterator[Prompt | RejectReason], str] | RejectReason:
    """The prompts of a record and its kept fields."""
    prompts = write_prompts(record, reader.writer)
    if isinstance(prompts, RejectReason):
        return prompts
    kept = kept_fields(record, reader.keep)
    return kept if isinstance(kept, RejectReason) else (prompts, kept)


def _size(item: Written | Reject) -> int:
    if isinstance(item, Reject):
        return len(item.reason)
    # A token id in a list is 8 bytes, and mostly an object of its own.
    return len(item.kept) + len(item.prompt.content) * (1 if isinstance(item.prompt.content, str) else 40)
