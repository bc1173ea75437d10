"""The messages between this process and the processes that tokenise lines (limited/frames.py):

facts        the first answer: TokenizerFacts
lines        {"name", "first", "sizes"}, and the bytes of the lines; a line without data has a negative size
documents    {"items", "has_marks"}, and the token ids; with "has_marks" also a byte for each token
decode       {"token_ids"}; its answer is {"text"}, and with "each" {"texts"} of the tokens
"""

from collections.abc import Sequence

import numpy as np

from ...limited.frames import Frame
from ..lines.select import Marks
from ..lines.stream import Line
from .documents import Document
from .sample import Reject


def frame_of_lines(lines: Sequence[Line], name: str) -> Frame:
    """`lines`: consecutive lines of the stream `name`."""
    sizes = [-line.size_bytes if line.data is None else line.size_bytes for line in lines]
    return Frame({"name": name, "first": lines[0].index, "sizes": sizes}, b"".join(line.data or b"" for line in lines))


def lines_of_frame(frame: Frame) -> list[Line]:
    """The lines that frame_of_lines put into a frame."""
    lines, begin = [], 0
    for index, size in enumerate(frame.facts["sizes"], frame.facts["first"]):
        end = begin + max(size, 0)
        lines.append(Line(index, frame.data[begin:end] if size >= 0 else None, abs(size)))
        begin = end
    return lines


def frame_of_documents(documents: Sequence[Document | Reject]) -> Frame:
    """A frame `documents`: the token ids of all documents as int32, then their marks, a byte for each token."""
    items: list[list] = []
    ids, marked = [], []
    for document in documents:
        if isinstance(document, Reject):
            items.append([document.index, document.line, document.reason, document.samples])
            continue
        ids.append(document.token_ids)
        ranges = None
        if document.marks is not None:
            marked.append(document.marks.marked)
            ranges = None if document.marks.ranges is None else document.marks.ranges.tolist()
        kept = len(document.token_ids)
        items.append([document.index, document.line, kept, document.length, document.preview, document.kept, ranges])
    return Frame({"items": items, "has_marks": bool(marked)}, b"".join(array.tobytes() for array in (*ids, *marked)))


def documents_of_frame(frame: Frame) -> list[Document | Reject]:
    """The documents and rejects of a frame `documents`. Their ids and marks are views of it."""
    items = frame.facts["items"]
    count = sum(item[2] for item in items if len(item) == 7)
    ids = np.frombuffer(frame.data, np.int32, count)
    marked = np.frombuffer(frame.data, np.uint8, count, 4 * count) if frame.facts["has_marks"] else None
    documents: list[Document | Reject] = []
    begin = 0
    for index, line, *rest in items:
        if len(rest) == 2:
            documents.append(Reject(index, rest[0], line, rest[1]))
            continue
        size, length, preview, kept, ranges = rest
        span = slice(begin, begin + size)
        marks = None
        if marked is not None:
            marks = Marks(marked[span], None if ranges is None else np.array(ranges, np.int32).reshape(-1, 2))
        documents.append(Document(index, line, ids[span], length, marks, preview, kept))
        begin += size
    return documents
