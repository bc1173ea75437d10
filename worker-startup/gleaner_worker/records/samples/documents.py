"""Cuts long documents into chunks, or into windows that several documents share.

    chunk   a document becomes samples of at most `length` tokens; each repeats the last `overlap` tokens of the chunk
            before, and begins with BOS where the document does
    pack    the documents of a stream follow each other and are cut into windows of `length` tokens; every window
            begins with BOS where documents do. A document without BOS ends with EOS, if the model has one

The last window of a stream may be shorter. Every token of a document is in a chunk or a window.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..lines.select import Marks
from .sample import Reject


@dataclass(slots=True)
class Document:
    """The tokens of a record."""

    index: int  # of its sample, where a document makes one
    line: int
    token_ids: np.ndarray  # int32 [length], or the first tokens that a sample may have
    length: int  # of all tokens of the record
    marks: Marks | None  # of the same tokens; None where the run looks for no spans
    preview: str
    kept: str


@dataclass(frozen=True)
class SampleTokens:
    """The tokens of one sample: a part of a document, or parts of several documents."""

    line: int  # of its first token
    chunk: int
    token_ids: np.ndarray  # int32 [length]
    marks: Marks | None
    kept: str = ""
    token_lines: np.ndarray | None = None  # int64 [length]


@dataclass(frozen=True)
class Cut:
    """The rule by which a run cuts documents."""

    over_long: str  # "chunk" or "pack"
    length: int  # tokens of a chunk or window
    overlap: int  # tokens
    bos_id: int | None
    eos_id: int | None


def cut_documents(items: Iterable[Document | Reject], cut: Cut) -> Iterator[SampleTokens | Reject]:
    """Cuts the documents, in order. Yields rejects unchanged, each at its place."""
    windows = _PackedWindows(cut) if cut.over_long == "pack" else None
    for item in items:
        if isinstance(item, Reject):
            yield item
        elif windows is None:
            yield from _chunks(item, cut)
        else:
            yield from windows.add(item)
    if windows is not None:
        yield from windows.flush()


def _chunks(document: Document, cut: Cut) -> Iterator[SampleTokens]:
    ids, marked = document.token_ids, _marked(document)
    prefix = int(_begins_with(ids, cut.bos_id))  # tokens that every chunk begins with
    step = cut.length - prefix - cut.overlap
    begins = range(prefix, max(prefix + 1, len(ids) - cut.overlap), step)
    for chunk, begin in enumerate(begins):
        span = np.r_[0:prefix, begin : min(begin + cut.length - prefix, len(ids))]
        marks = None if marked is None else Marks(marked[span])
        yield SampleTokens(document.line, chunk, ids[span], marks, document.kept)


class _PackedWindows:
    """Fills windows with documents."""

    def __init__(self, cut: Cut):
        self._cut = cut
        self._parts: list[tuple[np.ndarray, np.ndarray | None, int, int]] = []  # token ids, marked, line, chunk
        self._size = 0

    def add(self, document: Document) -> Iterator[SampleTokens]:
        cut, ids, marked = self._cut, document.token_ids, _marked(document)
        has_bos = _begins_with(ids, cut.bos_id)
        if not has_bos and cut.eos_id is not None and ids[-1] != cut.eos_id:
            ids = np.append(ids, np.int32(cut.eos_id))
            marked = None if marked is None else np.append(marked, np.uint8(0))
        begin, chunk = 0, 0
        while begin < len(ids):
            if has_bos and begin and not self._size:
                self._put(ids[:1], None if marked is None else np.zeros(1, np.uint8), document.line, chunk)
            end = min(len(ids), begin + cut.length - self._size)
            self._put(ids[begin:end], None if marked is None else marked[begin:end], document.line, chunk)
            begin, chunk = end, chunk + 1
            if self._size == cut.length:
                yield from self.flush()

    def _put(self, ids: np.ndarray, marked: np.ndarray | None, line: int, chunk: int) -> None:
        self._parts.append((ids, marked, line, chunk))
        self._size += len(ids)

    def flush(self) -> Iterator[SampleTokens]:
        """Yields the current window, unless it is empty."""
        if not self._parts:
            return
        ids, marked, lines, chunks = zip(*self._parts, strict=True)
        yield SampleTokens(
            lines[0],
            chunks[0],
            np.concatenate(ids),
            None if marked[0] is None else Marks(np.concatenate(marked)),
            token_lines=np.repeat(np.array(lines, np.int64), [len(part) for part in ids]),
        )
        self._parts, self._size = [], 0


def _marked(document: Document) -> np.ndarray | None:
    return None if document.marks is None else document.marks.marked


def _begins_with(ids: np.ndarray, token: int | None) -> bool:
    return token is not None and len(ids) > 0 and ids[0] == token
