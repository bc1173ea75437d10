"""Reads a stream: the lines of a local JSONL file, plain or gzip, with one line in memory at a time."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from ...failures import Failure

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_LINES = 50_000_000
_LINES_PER_CHECK = 1 << 16
_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(slots=True)
class Line:
    """A line of a stream."""

    index: int  # zero-based
    data: bytes | None  # without its line ending; None for a line over MAX_LINE_BYTES
    size_bytes: int


def read_lines(path: str, name: str, check: Callable[[], None] = lambda: None) -> Iterator[Line]:
    """Yields every line, including blank lines. A newline at the end of the file makes no further line.

    The content decides whether the file is gzip: no JSON line starts with gzip's magic bytes.
    check: called regularly within a line over the limit.
    Raises Failure("stream"), naming the object `name`, when a gzip file is damaged.
    """
    for index, line in enumerate(_read(path, name, check)):
        yield Line(index, line, len(line)) if isinstance(line, bytes) else Line(index, None, line)


def no_lines(name: str) -> Failure:
    """The failure of a stream without lines."""
    return Failure("stream", f"Failed to read {name}: it has no lines; upload it again with at least one record")


def damaged(name: str, error: Exception) -> Failure:
    """The failure of a stream with damaged gzip data."""
    return Failure("stream", f"Failed to read {name}: its gzip data is damaged ({error}); upload it again")


def count_lines(path: str, name: str, check: Callable[[], None] = lambda: None) -> int:
    """Counts the lines of a stream; calls `check` regularly. Raises Failure("stream") for more than MAX_LINES lines."""
    lines = 0
    for lines, _ in enumerate(_read(path, name, check), 1):
        if lines % _LINES_PER_CHECK == 0:
            check()
        if lines > MAX_LINES:
            raise Failure("stream", f"Failed to read {name}: it has over {MAX_LINES} lines; divide it into streams")
    return lines


def _read(path: str, name: str, check: Callable[[], None]) -> Iterator[bytes | int]:
    """The lines as _split yields them. Raises Failure("stream")."""
    try:
        with _open(path) as file:
            yield from _split(file, check)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(name, error) from error


def _open(path: str) -> BinaryIO:
    with open(path, "rb") as file:
        magic = file.read(2)
    return cast(BinaryIO, gzip.open(path, "rb")) if magic == _GZIP_MAGIC else open(path, "rb", buffering=1 << 20)


def _split(file: BinaryIO, check: Callable[[], None]) -> Iterator[bytes | int]:
    """Yields each line without its ending, or the length of a line over the limit."""
    first = True
    # The byte order mark is not part of the first line, so it does not count towards the limit.
    while line := file.readline(MAX_LINE_BYTES + 2 + (len(_BOM) if first else 0)):
        if first:
            first = False
            line = line.removeprefix(_BOM)
            if not line:
                continue
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            yield _skip_line(file, len(line), check)
            continue
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line if len(line) <= MAX_LINE_BYTES else len(line)


def _skip_line(file: BinaryIO, size: int, check: Callable[[], None]) -> int:
    while piece := file.readline(1 << 20):
        check()
        size += len(piece)
        if piece.endswith(b"\n"):
            return size - 1
    return size
