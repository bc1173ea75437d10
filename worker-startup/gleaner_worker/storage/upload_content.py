"""Contents to upload: seekable files that know their size and checksum, so that an upload reads them once."""

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from gleaner_reader.format.checksums import as_text, crc32c, extend

_MULTIPART_BYTES = 8 << 20  # the client joins a content of at most this size with its metadata, so it needs bytes
_READ_BYTES = 4 << 20
_SENT_BYTES = 4 << 20  # are counted at once


class Content(Protocol):
    """A seekable file with its size and checksum."""

    size: int
    crc32c: str  # base64

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


@runtime_checkable
class InMemory(Protocol):
    """A content in memory."""

    def views(self, size: int) -> list[memoryview]:
        """The next bytes, at most `size`, without a copy."""
        ...


def sha256_of(content: Content) -> str:
    """SHA-256 of the whole content, hexadecimal. Holds no lock of the interpreter while it computes."""
    digest = hashlib.sha256()
    content.seek(0)
    for _ in range(0, content.size, _READ_BYTES):
        for part in content.views(_READ_BYTES) if isinstance(content, InMemory) else [content.read(_READ_BYTES)]:
            digest.update(part)
    content.seek(0)
    return digest.hexdigest()


class BytesContent(io.BytesIO):
    """Bytes in memory."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self.size = len(data)
        self.crc32c = as_text(crc32c(data))


class FileContent:
    """An open local file, which is read once for its size and checksum."""

    def __init__(self, file: BinaryIO):
        self.size = checksum = 0
        while piece := file.read(_READ_BYTES):
            checksum = extend(checksum, piece)
            self.size += len(piece)
        file.seek(0)
        self.crc32c = as_text(checksum)
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


@dataclass(frozen=True)
class Views:
    """Bytes in several memory blocks. The Cloud Storage client sends the blocks in order, and again for a retry."""

    parts: list[memoryview]
    sent: Callable[[int], None]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __iter__(self) -> Iterator[memoryview]:
        for part in self.parts:
            for begin in range(0, len(part), _SENT_BYTES):
                piece = part[begin : begin + _SENT_BYTES]
                yield piece
                self.sent(len(piece))


class CheckedContent:
    """A content that calls `check` before each read; an error of `check` ends the upload. sent: receives the bytes as
    they are sent."""

    def __init__(self, content: Content, check: Callable[[], None], sent: Callable[[int], None]):
        self._content, self._check, self._sent = content, check, sent
        self.seek, self.tell = content.seek, content.tell

    def read(self, size: int = -1) -> bytes | Views:
        """Returns large parts of a content in memory without a copy."""
        self._check()
        if size > _MULTIPART_BYTES and isinstance(self._content, InMemory):
            return Views(self._content.views(size), self._sent)
        data = self._content.read(size)
        self._sent(len(data))
        return data
