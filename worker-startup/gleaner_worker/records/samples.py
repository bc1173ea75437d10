"""Samples and rejects of a stream, in the order of its lines: the numbering that every later step uses.

Line n (from 0) with P predictions per task makes the samples n * P to n * P + P - 1; P is 1 except for ARC tasks. In
a run that cuts documents (over_long chunk and pack), samples and rejects are counted from 0.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from .documents import Document, Piece, cut_documents
from .read_prompts import Window, Written, read_windows
from .reader import Reader
from .reject_reason import RejectReason
from .sample import Reject, Sample
from .select import select
from .tokenizer import Encoded, encode_complete, encode_texts, encode_written

_PREVIEW_CHARS = 200
# Longer texts are rejected before they cost time and memory: no tokenizer makes longer tokens on average.
_MOST_CHARS_PER_TOKEN = 32
_LEAST_CHARS = 8192  # a few tokens may be longer


def read_samples(path: str, name: str, reader: Reader) -> Iterator[Sample | Reject]:
    """Yields the samples of the file at `path`, without a gap; `name` is the object's name, for messages."""
    return tokenize_windows(read_windows(path, name, reader), reader)


def tokenize_windows(windows: Iterable[Window], reader: Reader) -> Iterator[Sample | Reject]:
    """The second half of read_samples."""
    documents = (document for window in windows for document in _tokenize(window, reader))
    if reader.cut is None:
        for item in documents:
            yield item if isinstance(item, Reject) else _whole(item, reader)
        return
    for index, item in enumerate(cut_documents(documents, reader.cut)):
        yield replace(item, index=index) if isinstance(item, Reject) else _piece(item, index, reader)


def _tokenize(window: Window, reader: Reader) -> Iterator[Document | Reject]:
    window = [_limit(item, reader) for item in window]
    complete = [item.prompt for item in window if isinstance(item, Written) and item.prompt.is_complete]
    texts = [str(prompt.content) for prompt in complete]
    if reader.selection.tokens == "assistant":
        spans = [prompt.assistant or [] for prompt in complete]
        complete_ids = iter(encode_written(texts, spans, reader.tokenizer, reader.bos))
    else:
        complete_ids = iter(encode_complete(texts, reader.tokenizer, reader.bos))
    plain_ids = iter(encode_texts(_plain_texts(window), reader.tokenizer, reader.bos))
    for item in window:
        if isinstance(item, Reject):
            yield item
            continue
        content = item.prompt.content
        if isinstance(content, str):
            made = next(complete_ids if item.prompt.is_complete else plain_ids)
        else:
            made = Encoded(content)
        problem = made if isinstance(made, RejectReason) else _problem_of(made.ids, reader)
        if problem is not None:
            yield Reject(item.index, problem.text, item.line)
            continue
        made = cast(Encoded, made)
        preview = content if isinstance(content, str) else _decode(content, reader)
        token_ids = np.asarray(made.ids, dtype=np.int32)
        yield Document(item.index, item.line, token_ids, made.written, preview[:_PREVIEW_CHARS], item.kept)


def _limit(item: Written | Reject, reader: Reader) -> Written | Reject:
    limit = max(_MOST_CHARS_PER_TOKEN * reader.max_length, _LEAST_CHARS)
    if isinstance(item, Reject) or reader.over_long != "reject" or not isinstance(item.prompt.content, str):
        return item
    size = len(item.prompt.content)
    if size <= limit:
        return item
    reason = f"has {size} characters; a text of {reader.max_length} tokens (max_seq_length) has at most {limit}"
    return Reject(item.index, reason, item.line)


def _plain_texts(window: Window) -> list[str]:
    prompts = [item.prompt for item in window if isinstance(item, Written) and not item.prompt.is_complete]
    return [prompt.content for prompt in prompts if isinstance(prompt.content, str)]


def _problem_of(ids: list[int], reader: Reader) -> RejectReason | None:
    """A post-processor may add ids that the vocabulary lacks, as a record may."""
    if not ids:
        return RejectReason("has no tokens")
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
    length = len(document.token_ids)
    is_longer = length > reader.max_length
    if is_longer and reader.over_long == "reject":
        return Reject(
            document.index,
            f"is {length} tokens long; the limit is {reader.max_length} "
            "(max_seq_length in run.json, and never more than the model's positions; "
            "over_long: truncate would keep the beginning, and chunk all of it)",
            document.line,
        )
    token_ids = document.token_ids[: reader.max_length]
    written = None if document.written is None else document.written[: reader.max_length]
    positions = select(reader.selection, token_ids, written)
    if isinstance(positions, RejectReason):
        return Reject(document.index, positions.text, document.line)
    return Sample(document.index, token_ids, positions, document.preview, is_longer, document.kept, document.line)


def _piece(piece: Piece, index: int, reader: Reader) -> Sample | Reject:
    positions = select(reader.selection, piece.token_ids, piece.written)
    if isinstance(positions, RejectReason):
        return Reject(index, positions.text, piece.line, chunk=piece.chunk)
    return Sample(index, piece.token_ids, positions, "", False, piece.kept, piece.line, piece.chunk, piece.token_lines)
