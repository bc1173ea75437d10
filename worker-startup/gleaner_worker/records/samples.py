"""Samples and rejects of a stream, in the order of its lines: the numbering that every later step uses.

Line n (from 0) with P predictions per task makes the samples n * P to n * P + P - 1; P is 1 except for ARC tasks. In
a run that cuts documents (over_long chunk and pack), samples and rejects are counted from 0.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from .documents import Document, SampleTokens, cut_documents
from .read_prompts import MOST_BYTES, MOST_ITEMS, RenderedPrompt, in_batches, read_prompts
from .reader import Reader
from .reject_reason import RejectReason
from .sample import Reject, Sample
from .select import select
from .stream import Line, read_lines
from .tokenizer import Encoded, encode_complete, encode_texts, encode_with_mask

_PREVIEW_CHARS = 200
# Longer texts are rejected or cut before they cost time and memory: no tokenizer makes longer tokens on average.
_MOST_CHARS_PER_TOKEN = 32
_LEAST_CHARS = 8192  # a few tokens may be longer


Documents = list[Document | Reject]
Tokenize = Callable[[Iterable[list[Line]], str], Iterator[Documents]]


def read_samples(path: str, name: str, reader: Reader) -> Iterator[Sample | Reject]:
    """Yields the samples of the file at `path`, without a gap; `name` is the object's name, for messages."""
    return make_samples(read_documents(path, name, reader), reader)


def read_documents(path: str, name: str, reader: Reader, tokenize: Tokenize | None = None) -> Generator[Documents]:
    """Reads the lines of the file at `path`, and tokenises them in batches, in the order of the lines.

    tokenize: the processes of tokenize_process.py; None for this process. Raises Failure("stream").
    """
    batches = _line_batches(path, name, reader)
    if tokenize is None:
        yield from (tokenize_lines(lines, name, reader) for lines in batches)
    else:
        yield from tokenize(batches, name)


def tokenize_lines(lines: Iterable[Line], name: str, reader: Reader) -> Documents:
    """The documents and rejects of the lines. Raises Failure("stream")."""
    return [item for batch in read_prompts(lines, name, reader) for item in _tokenize(batch, reader)]


def make_samples(batches: Iterable[Documents], reader: Reader) -> Iterator[Sample | Reject]:
    """The samples of documents, cut and selected as the spec of `reader` says."""
    documents = (item for batch in batches for item in batch)
    if reader.cut is None:
        for item in documents:
            yield item if isinstance(item, Reject) else _whole(item, reader)
        return
    for index, item in enumerate(cut_documents(documents, reader.cut)):
        yield replace(item, index=index) if isinstance(item, Reject) else _cut_sample(item, index, reader)


def _line_batches(path: str, name: str, reader: Reader) -> Iterator[list[Line]]:
    """Lines that make at most MOST_ITEMS samples, and hold at most MOST_BYTES; at least one line each."""
    most_lines = max(1, MOST_ITEMS // reader.writer.predictions)
    return in_batches(read_lines(path, name), lambda line: len(line.data or b""), most_lines, MOST_BYTES)


def _tokenize(batch: list[RenderedPrompt | Reject], reader: Reader) -> Iterator[Document | Reject]:
    batch = [_limit(item, reader) for item in batch]
    complete = [item.prompt for item in batch if isinstance(item, RenderedPrompt) and item.prompt.is_complete]
    texts = [str(prompt.content) for prompt in complete]
    if reader.selection.tokens == "assistant":
        spans = [prompt.assistant or [] for prompt in complete]
        complete_ids = iter(encode_with_mask(texts, spans, reader.tokenizer, reader.bos))
    else:
        complete_ids = iter(encode_complete(texts, reader.tokenizer, reader.bos))
    plain_ids = iter(encode_texts(_plain_texts(batch), reader.tokenizer, reader.bos))
    for item in batch:
        if isinstance(item, Reject):
            yield item
            continue
        content = item.prompt.content
        if isinstance(content, str):
            made = next(complete_ids if item.prompt.is_complete else plain_ids)
        else:
            made = Encoded(content)
        problem = made if isinstance(made, RejectReason) else _problem_of(made.ids, item, reader)
        if problem is not None:
            yield Reject(item.index, problem.text, item.line)
            continue
        yield _document(item, cast(Encoded, made), reader)


def _document(item: RenderedPrompt, encoded: Encoded, reader: Reader) -> Document:
    content = item.prompt.content
    preview = content if isinstance(content, str) else _decode(content, reader)
    end = reader.max_length if reader.cut is None else None  # no sample has the later tokens
    mask = None if encoded.assistant_mask is None else encoded.assistant_mask[:end]
    token_ids = np.asarray(encoded.ids[:end], dtype=np.int32)
    return Document(item.index, item.line, token_ids, len(encoded.ids), mask, preview[:_PREVIEW_CHARS], item.kept)


def _limit(item: RenderedPrompt | Reject, reader: Reader) -> RenderedPrompt | Reject:
    """Rejects or cuts a text that is too long to be tokenised as a whole."""
    if isinstance(item, Reject) or reader.cut is not None or not isinstance(item.prompt.content, str):
        return item
    limit = max(_MOST_CHARS_PER_TOKEN * reader.max_length, _LEAST_CHARS)
    size = len(item.prompt.content)
    if size <= limit:
        return item
    if reader.over_long == "truncate":
        return replace(item, prompt=replace(item.prompt, content=item.prompt.content[:limit]), characters=size)
    reason = f"has {size} characters; a text of {reader.max_length} tokens (max_seq_length) has at most {limit}"
    return Reject(item.index, reason, item.line)


def _plain_texts(batch: list[RenderedPrompt | Reject]) -> list[str]:
    prompts = [item.prompt for item in batch if isinstance(item, RenderedPrompt) and not item.prompt.is_complete]
    return [prompt.content for prompt in prompts if isinstance(prompt.content, str)]


def _problem_of(ids: list[int], item: RenderedPrompt, reader: Reader) -> RejectReason | None:
    """A post-processor may add ids that the vocabulary lacks, as a record may."""
    if not ids:
        return RejectReason("has no tokens")
    if item.characters and len(ids) <= reader.max_length:
        return RejectReason(
            f"has {item.characters} characters, and its first {len(item.prompt.content)} make only {len(ids)} tokens"
        )
    if 0 <= min(ids) and max(ids) < reader.vocab_size:
        return None
    position, token = next((at, token) for at, token in enumerate(ids) if not 0 <= token < reader.vocab_size)
    number = str(token) if abs(token) < 1 << 63 else "of more than 63 bits"
    return RejectReason(
        f"token id {number} at position {position} is not in the vocabulary (0 to {reader.vocab_size - 1})"
    )


def _decode(ids: list[int], reader: Reader) -> str:
    return reader.tokenizer.decode(ids[:_PREVIEW_CHARS], skip_special_tokens=False)


def _whole(document: Document, reader: Reader) -> Sample | Reject:
    """A document as one sample."""
    is_longer = document.length > reader.max_length
    if is_longer and reader.over_long == "reject":
        return Reject(
            document.index,
            f"is {document.length} tokens long; the limit is {reader.max_length} "
            "(max_seq_length in run.json, and never more than the model's positions; "
            "over_long: truncate would keep the beginning, and chunk all of it)",
            document.line,
        )
    ids = document.token_ids
    positions = select(reader.selection, ids, document.assistant_mask)
    if isinstance(positions, RejectReason):
        return Reject(document.index, positions.text, document.line)
    return Sample(document.index, ids, positions, document.preview, is_longer, document.kept, document.line)


def _cut_sample(tokens: SampleTokens, index: int, reader: Reader) -> Sample | Reject:
    """One sample of a cut document, or of several."""
    positions = select(reader.selection, tokens.token_ids, tokens.assistant_mask)
    if isinstance(positions, RejectReason):
        return Reject(index, positions.text, tokens.line, chunk=tokens.chunk)
    return Sample(
        index, tokens.token_ids, positions, "", False, tokens.kept, tokens.line, tokens.chunk, tokens.token_lines
    )
