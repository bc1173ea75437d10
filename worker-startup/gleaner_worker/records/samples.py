"""Samples and rejects of a stream, in the order of its lines: the numbering that every later step uses.

Line n (from 0) with P predictions per task makes the samples n * P to n * P + P - 1; P is 1 except for ARC tasks. In
a run that cuts documents (over_long chunk and pack), samples and rejects are counted from 0.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..failures import raise_exits
from .documents import Document, SampleTokens, cut_documents
from .generated import Answers, continue_documents
from .prompts import Prompt
from .read_prompts import MOST_BYTES, MOST_ITEMS, RenderedPrompt, in_batches, read_prompts
from .rejected import Rejected
from .sample import Reject, Sample
from .sample_settings import SampleSettings
from .select import Marks, select
from .stream import Line, read_lines
from .tokenizer import Encoded, encode_complete, encode_ids, encode_texts

_PREVIEW_CHARS = 200
# Longer texts are rejected or cut before they cost time and memory: no tokenizer makes longer tokens on average.
_MOST_CHARS_PER_TOKEN = 32
_LEAST_CHARS = 8192  # a few tokens may be longer


Documents = list[Document | Reject]
Tokenize = Callable[[Iterable[list[Line]], str, Callable[[], None]], Iterator[Documents]]


def read_samples(
    path: str, name: str, settings: SampleSettings, answers: Answers | None = None
) -> Iterator[Sample | Reject]:
    """Yields the samples of the file at `path`, without a gap; `name` is the object's name, for messages.

    answers: of a run that generates tokens.
    """
    documents = read_documents(path, name, settings)
    return make_samples(continue_documents(documents, settings, answers) if answers else documents, settings)


def read_documents(
    path: str,
    name: str,
    settings: SampleSettings,
    tokenize: Tokenize | None = None,
    check: Callable[[], None] = lambda: None,
) -> Generator[Documents]:
    """Reads the lines of the file at `path`, and tokenises them in batches, in the order of the lines.

    tokenize: the processes of tokenize_process.py; None for this process. check: called before each line in this
    process, and during waits for others; it may raise. Raises Failure("stream").
    """
    batches = _line_batches(path, name, settings)
    if tokenize is None:
        yield from (tokenize_lines(_checked(lines, check), name, settings) for lines in batches)
    else:
        yield from tokenize(batches, name, check)


def _checked(lines: list[Line], check: Callable[[], None]) -> Iterator[Line]:
    for line in lines:
        check()
        yield line


def tokenize_lines(lines: Iterable[Line], name: str, settings: SampleSettings) -> Documents:
    """The documents and rejects of the lines. Raises Failure("stream")."""
    return [item for batch in read_prompts(lines, name, settings) for item in _tokenize(batch, settings)]


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
    most_lines = max(1, MOST_ITEMS // settings.writer.predictions)
    return in_batches(read_lines(path, name), lambda line: len(line.data or b""), most_lines, MOST_BYTES)


def _tokenize(batch: list[RenderedPrompt | Reject], settings: SampleSettings) -> Iterator[Document | Reject]:
    batch = [_limit(item, settings) for item in batch]
    complete = [item.prompt for item in batch if isinstance(item, RenderedPrompt) and item.prompt.is_complete]
    plain = [item.prompt for item in batch if isinstance(item, RenderedPrompt) and _is_plain_text(item.prompt)]
    has_spans = bool(settings.writer.spans.sources)
    complete_ids, plain_ids = (
        iter(
            encode(
                [str(prompt.content) for prompt in prompts],
                settings.tokenizer,
                settings.bos,
                [prompt.spans for prompt in prompts] if has_spans else None,
            )
        )
        for encode, prompts in ((encode_complete, complete), (encode_texts, plain))
    )
    for item in batch:
        if isinstance(item, Reject):
            yield item
            continue
        content = item.prompt.content
        if isinstance(content, str):
            made = next(complete_ids if item.prompt.is_complete else plain_ids)
        else:
            made = encode_ids(content, item.prompt.spans)
        try:
            if isinstance(made, Rejected):
                raise made
            yield _document(item, made, settings)
        except Rejected as reason:
            yield Reject(item.index, str(reason), item.line)


def _document(item: RenderedPrompt, encoded: Encoded, settings: SampleSettings) -> Document:
    ids = _checked_ids(encoded.ids, item, settings)
    content = item.prompt.content
    preview = content if isinstance(content, str) else _decode(content, settings)
    end = settings.max_length if settings.cut is None else None  # no sample has the later tokens
    marks = encoded.marks and encoded.marks.first(end)
    if marks and not settings.selection.parsed.reduces_spans:
        marks = Marks(marks.marked)
    kept_ids = ids if end is None or len(ids) <= end else ids[:end].copy()
    return Document(item.index, item.line, kept_ids, len(ids), marks, preview[:_PREVIEW_CHARS], item.kept)


def _limit(item: RenderedPrompt | Reject, settings: SampleSettings) -> RenderedPrompt | Reject:
    """Rejects or cuts a text that is too long to be tokenised as a whole."""
    if isinstance(item, Reject) or settings.cut is not None or not isinstance(item.prompt.content, str):
        return item
    limit = max(_MOST_CHARS_PER_TOKEN * settings.max_length, _LEAST_CHARS)
    size = len(item.prompt.content)
    if size <= limit:
        return item
    if settings.over_long == "truncate":
        return replace(item, prompt=replace(item.prompt, content=item.prompt.content[:limit]), characters=size)
    reason = f"has {size} characters; a text of {settings.max_length} tokens (max_seq_length) has at most {limit}"
    return Reject(item.index, reason, item.line)


def _is_plain_text(prompt: Prompt) -> bool:
    return isinstance(prompt.content, str) and not prompt.is_complete


def _checked_ids(ids: list[int], item: RenderedPrompt, settings: SampleSettings) -> np.ndarray:
    """The ids, int32. Raises Rejected. A post-processor may add ids that the vocabulary lacks, as a record may."""
    if not ids:
        raise Rejected("has no tokens")
    if item.characters and len(ids) <= settings.max_length:
        raise Rejected(
            f"has {item.characters} characters, and its first {len(item.prompt.content)} make only {len(ids)} tokens"
        )
    with suppress(OverflowError):  # of an id that int32 cannot hold
        token_ids = np.array(ids, np.int32)
        if token_ids.min() >= 0 and token_ids.max() < settings.vocab_size:
            return token_ids
    position, token = next((at, token) for at, token in enumerate(ids) if not 0 <= token < settings.vocab_size)
    number = str(token) if abs(token) < 1 << 63 else "of more than 63 bits"
    raise Rejected(
        f"token id {number} at position {position} is not in the vocabulary (0 to {settings.vocab_size - 1})"
    )


def _decode(ids: list[int], settings: SampleSettings) -> str:
    """The text of the first ids; the empty text where the decoder of tokenizer.json fails or panics."""
    try:
        return settings.tokenizer.decode(ids[:_PREVIEW_CHARS], skip_special_tokens=False)
    except BaseException as error:
        raise_exits(error)
        return ""


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
