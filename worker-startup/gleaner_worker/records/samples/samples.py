"""Samples and rejects of a stream, in the order of its lines: the numbering that every later step uses.

Line n (from 0) with P predictions per task makes the samples n * P to n * P + P - 1; P is 1 except for ARC tasks. In
a run that cuts documents (over_long chunk and pack), samples and rejects are counted from 0.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace

from ..lines.rejected import Rejected
from ..lines.select import select
from ..lines.stream import Line, read_lines
from .documents import Document, SampleTokens, cut_documents
from .generated import Answers, continue_documents
from .read_prompts import MOST_BYTES, MOST_ITEMS, in_batches
from .sample import Reject, Sample
from .sample_settings import Documents, SampleSettings


def read_samples(
    path: str, name: str, settings: SampleSettings, answers: Answers | None = None
) -> Iterator[Sample | Reject]:
    """Yields the samples of the file at `path`, without a gap; `name` is the object's name, for messages.

    answers: of a run that generates tokens.
    """
    documents = read_documents(path, name, settings)
    return make_samples(continue_documents(documents, settings, answers) if answers else documents, settings)


def read_documents(
    path: str, name: str, settings: SampleSettings, check: Callable[[], None] = lambda: None
) -> Generator[Documents]:
    """Reads the lines of the file at `path`, and tokenises them in batches, in the order of the lines.

    check: as SampleSettings.tokenize has it. Raises Failure.
    """
    yield from settings.tokenize(_line_batches(path, name, settings), name, check)


def make_samples(batches: Iterable[Documents], settings: SampleSettings) -> Iterator[Sample | Reject]:
    """The samples of documents, cut and selected as `settings` say."""
    documents = (item for batch in batches for item in batch)
    if settings.cut is None:
        for item in documents:
            yield item if isinstance(item, Reject) else _whole(item, settings)
        return
    for index, item in enumerate(cut_documents(documents, settings.cut)):
        yield replace(item, index=index) if isinstance(item, Reject) else _cut_sample(item, index, settings)


def _line_batches(path: str, name: str, settings: SampleSettings) -> Iterator[list[Line]]:
    """Lines that make at most MOST_ITEMS samples, and hold at most MOST_BYTES; at least one line each."""
    most_lines = max(1, MOST_ITEMS // settings.predictions)
    return in_batches(read_lines(path, name), lambda line: len(line.data or b""), most_lines, MOST_BYTES)


def _whole(document: Document, settings: SampleSettings) -> Sample | Reject:
    """A document as one sample."""
    is_longer = document.length > settings.max_length
    if is_longer and settings.over_long == "reject":
        return Reject(
            document.index,
            f"is {document.length} tokens long; the limit is {settings.max_length} "
            "(max_seq_length in run.json, without generate.max_new_tokens, and never more than the model's positions; "
            "over_long: truncate would keep the beginning, and chunk all of it)",
            document.line,
        )
    ids = document.token_ids
    try:
        rows = select(settings.selection, ids, document.marks, document.index)
    except Rejected as reason:
        return Reject(document.index, str(reason), document.line)
    return Sample(
        document.index,
        ids,
        rows.positions,
        document.preview,
        is_longer,
        document.kept,
        document.line,
        pools=rows.pools,
        span_idx=rows.span_idx,
        mask=settings.mask_of(document.marks),
    )


def _cut_sample(tokens: SampleTokens, index: int, settings: SampleSettings) -> Sample | Reject:
    """One sample of a cut document, or of several."""
    try:
        rows = select(settings.selection, tokens.token_ids, tokens.marks, index)
    except Rejected as reason:
        return Reject(index, str(reason), tokens.line, chunk=tokens.chunk)
    return Sample(
        index,
        tokens.token_ids,
        rows.positions,
        "",
        False,
        tokens.kept,
        tokens.line,
        tokens.chunk,
        tokens.token_lines,
        mask=settings.mask_of(tokens.marks),
    )
