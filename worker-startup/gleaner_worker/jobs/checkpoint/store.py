"""One version of a checkpoint: hard links of the folder, then its objects, then its manifest."""

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from ...storage.objects import Bucket
from ...storage.upload_content import BytesContent
from .folder import FileState, Scan, has_writer, is_unchanged, link_file
from .manifest import MANIFEST, Manifest, Piece, StoredFile

PIECE_BYTES = 64 << 20
# Smaller files are copied, so that a program that writes them in place does not spoil the version.
_COPIED_BYTES = 64 << 20
_STREAMS = 8  # pieces at once; each is in memory
_TYPE = "application/octet-stream"


class Spoiled(Exception):
    """The folder changed before the version was stored. The text names the file."""


@dataclass(frozen=True)
class Known:
    """The files of the last version, with the states in which a scan saw them: their bytes are in the bucket."""

    manifest: Manifest = field(default_factory=Manifest)
    states: dict[str, FileState] = field(default_factory=dict)

    def find(self, path: str, state: FileState) -> StoredFile | None:
        stored = self.manifest.files.get(path)
        return stored if stored is not None and self.states.get(path) == state else None


class Cut:
    """The files of the folder at one moment, in a folder that the job cannot see."""

    def __init__(self, uid: int, found: Scan, known: Known, copies: str):
        self.scan, self._uid, self._known, self._folder = found, uid, known, copies
        self.new = {path: state for path, state in found.files.items() if known.find(path, state) is None}
        self._copies = {path: os.path.join(copies, str(number)) for number, path in enumerate(sorted(self.new))}

    def link(self, root: str) -> None:
        """Raises Spoiled for a file that has changed since the scan."""
        os.makedirs(self._folder, mode=0o700)
        for path, copy in self._copies.items():
            if not link_file(root, path, copy, self.new[path], self._uid):
                raise Spoiled(path)

    @property
    def objects(self) -> int:
        return 1 + sum(_pieces_of(state.size) for state in self.new.values())

    def writers(self) -> tuple[str | None, bool]:
        """A file that a process has open for writing, and whether the file system can tell."""
        for path, copy in self._copies.items():
            with open(copy, "rb") as file:
                has = has_writer(file.fileno())
            if has:
                return path, True
            if has is None:
                return None, False
        return None, True

    def keep_small(self) -> None:
        """Copies small files. Raises Spoiled, and OSError on a full disk."""
        for path, copy in self._copies.items():
            if self.new[path].size <= _COPIED_BYTES:
                shutil.copyfile(copy, f"{copy}.copy")
                self._check(path, copy)
                os.replace(f"{copy}.copy", copy)

    def store(self, bucket: Bucket, prefix: str) -> tuple[Manifest, str]:
        """Uploads the new files, then the manifest. Returns the manifest and its SHA-256. Raises Spoiled."""
        files = {path: stored for path, state in self.scan.files.items() if (stored := self._known.find(path, state))}
        parts = [
            (path, f"{prefix}{number:06d}-{piece:04d}", piece)
            for number, path in enumerate(self._copies)
            for piece in range(_pieces_of(self.new[path].size))
        ]
        with ThreadPoolExecutor(_STREAMS, "checkpoint") as pool:
            pieces = pool.map(lambda part: self._store_piece(bucket, *part), parts)
            for path in self._copies:
                state = self.new[path]
                stored = tuple(islice(pieces, _pieces_of(state.size)))
                files[path] = StoredFile(state.mode, state.mtime_ns, stored)
        for path, copy in self._copies.items():
            if self.new[path].size > _COPIED_BYTES:
                self._check(path, copy)
        manifest = Manifest(files, self.scan.folders, self.scan.links)
        data = manifest.encode()
        bucket.create(prefix + MANIFEST, BytesContent(data), {}, "application/json")
        return manifest, hashlib.sha256(data).hexdigest()

    def _store_piece(self, bucket: Bucket, path: str, name: str, piece: int) -> Piece:
        with open(self._copies[path], "rb") as file:
            file.seek(piece * PIECE_BYTES)
            content = BytesContent(file.read(PIECE_BYTES))
        bucket.create(name, content, {}, _TYPE)
        return Piece(name, content.size, hashlib.sha256(content.getbuffer()).hexdigest())

    def _check(self, path: str, copy: str) -> None:
        if not is_unchanged(copy, self.new[path], self._uid):
            raise Spoiled(path)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _pieces_of(size: int) -> int:
    return max(1, -(-size // PIECE_BYTES))
