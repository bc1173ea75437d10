"""The prompts of lines: each record as the input of the tokenizer, in batches."""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ...limited import step
from ..lines.kept_fields import kept_fields
from ..lines.parse import parse_line
from ..lines.rejected import Rejected
from ..lines.stream import Line
from .prompts import Prompt, PromptWriter, write_prompts
from .sample import Reject

# The tokenizer uses every core for a batch of many prompts; these two limits bound the memory of a batch.
MOST_ITEMS = 512
MOST_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class RenderedPrompt:
    """A prompt, ready to be tokenised."""

    index: int  # of its sample, where a prompt makes one
    line: int
    prompt: Prompt
    kept: str
    characters: int = 0  # of the whole text, where the prompt holds its beginning


Item = TypeVar("Item")


def read_prompts(
    lines: Iterable[Line], name: str, writer: PromptWriter, keep: tuple[str, ...]
) -> Generator[list[RenderedPrompt | Reject]]:
    """Parses the lines and writes their prompts, in batches within MOST_ITEMS and MOST_BYTES.

    name: of the stream's object, for messages. keep: the fields of a record that the index keeps.
    """
    yield from in_batches(_write_lines(lines, name, writer, keep), _size, MOST_ITEMS, MOST_BYTES)


def in_batches(
    items: Iterable[Item], size_of: Callable[[Item], int], most: int, most_bytes: int
) -> Generator[list[Item]]:
    """Batches of at most `most` items and `most_bytes`; a larger item has a batch of its own."""
    batch: list[Item] = []
    size = 0
    for item in items:
        more = size_of(item)
        if batch and (len(batch) >= most or size + more > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def _write_lines(
    lines: Iterable[Line], name: str, writer: PromptWriter, keep: tuple[str, ...]
) -> Iterator[RenderedPrompt | Reject]:
    for line in lines:
        what = f"render the template for line {line.index + 1} of {name}"
        step.begin("stream", what, "simplify the template, the expression or the line")
        yield from _write(line, writer, keep)


def _write(line: Line, writer: PromptWriter, keep: tuple[str, ...]) -> Iterator[RenderedPrompt | Reject]:
    count = writer.predictions
    first = line.index * count
    try:
        record = parse_line(line)
        prompts, kept = write_prompts(record, writer), kept_fields(record, keep)
    except Rejected as reason:
        yield Reject(first, str(reason), line.index, count)
        return
    for index, prompt in enumerate(prompts, first):
        if isinstance(prompt, Rejected):
            yield Reject(index, str(prompt), line.index)
        else:
            yield RenderedPrompt(index, line.index, prompt, kept)


def _size(item: RenderedPrompt | Reject) -> int:
    if isinstance(item, Reject):
        return len(item.reason)
    # A token id in a list is 8 bytes, and mostly an object of its own.
    content = item.prompt.content
    return len(item.kept) + len(content) * (1 if isinstance(content, str) else 40)
