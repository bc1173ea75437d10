"""The prompts of lines: each record as the input of the tokenizer, in batches."""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ..failures import Failure
from .kept_fields import kept_fields
from .parse import parse_line
from .prompts import Prompt, Unrendered, render_prompts, write_prompts
from .rejected import Rejected
from .render_process import LimitExceeded
from .sample import Reject
from .sample_settings import SampleSettings
from .stream import Line

# The tokenizer uses every core for a batch of many prompts; these two limits bound the memory of a batch.
MOST_ITEMS = 512
MOST_BYTES = 4 * 1024 * 1024
# A message to the process of templates waits up to 5 ms for the interpreter's lock, so each has many prompts.
_RENDERED_ITEMS = 64
_RENDERED_BYTES = 1024 * 1024


@dataclass(slots=True)
class RenderedPrompt:
    """A prompt, ready to be tokenised."""

    index: int  # of its sample, where a prompt makes one
    line: int
    prompt: Prompt
    kept: str
    characters: int = 0  # of the whole text, where the prompt holds its beginning


@dataclass(slots=True)
class Draft:
    """A prompt before its template is rendered; see RenderedPrompt."""

    index: int
    line: int
    prompt: Unrendered
    kept: str


Written = Draft | RenderedPrompt | Reject
Item = TypeVar("Item")


def read_prompts(
    lines: Iterable[Line], name: str, settings: SampleSettings
) -> Generator[list[RenderedPrompt | Reject]]:
    """Parses the lines and writes their prompts, in batches within MOST_ITEMS and MOST_BYTES.

    name: of the stream's object, for messages. Raises Failure("stream") for a template that exceeds its limits.
    """
    drafts = in_batches(_write_lines(lines, name, settings), _size, _RENDERED_ITEMS, _RENDERED_BYTES)
    rendered = (item for batch in drafts for item in _render(batch, name))
    yield from in_batches(rendered, _size, MOST_ITEMS, MOST_BYTES)


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


def _write_lines(lines: Iterable[Line], name: str, settings: SampleSettings) -> Iterator[Written]:
    for line in lines:
        try:
            yield from _write(line, settings)
        except LimitExceeded as limit:
            raise _over_limit(line.index, name, limit) from limit


def _render(batch: list[Written], name: str) -> Iterator[RenderedPrompt | Reject]:
    drafts = [item for item in batch if isinstance(item, Draft)]
    try:
        prompts = iter(render_prompts([draft.prompt for draft in drafts]))
    except LimitExceeded as limit:
        raise _over_limit(drafts[limit.position].line, name, limit) from limit
    for item in batch:
        if not isinstance(item, Draft):
            yield item
        elif isinstance(prompt := next(prompts), Rejected):
            yield Reject(item.index, str(prompt), item.line)
        else:
            yield RenderedPrompt(item.index, item.line, prompt, item.kept)


def _over_limit(line: int, name: str, limit: LimitExceeded) -> Failure:
    return Failure(
        "stream",
        f"Failed to render the template for line {line + 1} of {name}: {limit}; simplify the template or the line",
    )


def _write(line: Line, settings: SampleSettings) -> Iterator[Written]:
    count = settings.writer.predictions
    first = line.index * count
    try:
        record = parse_line(line)
        prompts, kept = write_prompts(record, settings.writer), kept_fields(record, settings.keep)
    except Rejected as reason:
        yield Reject(first, str(reason), line.index, count)
        return
    for index, prompt in enumerate(prompts, first):
        if isinstance(prompt, Rejected):
            yield Reject(index, str(prompt), line.index)
        elif isinstance(prompt, Unrendered):
            yield Draft(index, line.index, prompt, kept)
        else:
            yield RenderedPrompt(index, line.index, prompt, kept)


def _size(item: Written) -> int:
    if isinstance(item, Reject):
        return len(item.reason)
    prompt = item.prompt
    if isinstance(prompt, Unrendered):
        return len(item.kept) + len(prompt.values)
    # A token id in a list is 8 bytes, and mostly an object of its own.
    return len(item.kept) + len(prompt.content) * (1 if isinstance(prompt.content, str) else 40)
