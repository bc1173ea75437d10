"""The restore of a version: the files of all hosts. A host's own file wins, then that of the lowest host."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePosixPath

from ...failures import Failure
from ...storage.objects import Bucket
from .folder import Scan, scan
from .manifest import Manifest, Piece, StoredFile, parse_manifest
from .store import Known

_STREAMS = 16  # pieces at once; each is in memory


class Unusable(Exception):
    """The stored version is incomplete or damaged."""


@dataclass(frozen=True)
class Restored:
    """What a restore left. foreign: entries of other hosts, which no version of this host names while unchanged."""

    known: Known = field(default_factory=Known)
    foreign: Scan = field(default_factory=Scan)


def restore(
    bucket: Bucket, folder: str, parts: dict, place: tuple[int, int], root: str, owner: tuple[int, int]
) -> Restored:
    """Fills the empty folder `root`, which the job user does not reach yet.

    place: number of this process, and of all. Process 0 also owns what processes of a larger attempt have left.
    owner: uid and gid of the job. folder: the prefix of all checkpoints of the job. parts: `object` and `digest` of the
    manifest of each process, by its number. Raises Unusable, and the other errors of the bucket.
    """
    process, processes = place
    order = sorted(map(int, parts), key=lambda number: (number != process, number))
    manifests = {number: _read_manifest(bucket, folder, parts[str(number)]) for number in order}
    union = _union([manifests[number] for number in reversed(order)])
    for path, mode in sorted(union.folders.items()):
        os.makedirs(os.path.join(root, path), mode=0o700, exist_ok=True)
        os.chmod(os.path.join(root, path), mode | 0o700)
    _write_files(bucket, root, files := union.files)
    for path, target in union.links.items():
        os.symlink(target, os.path.join(root, path))
    for parent, names, others in os.walk(root):
        for name in [*names, *others]:
            os.chown(os.path.join(parent, name), *owner, follow_symlinks=False)
    found = scan(root, owner[0], "", 1 << 62)
    if found is None:
        raise Failure("infrastructure", f"Failed to restore a checkpoint: {root} has changed")
    mine = [number for number in reversed(order) if number == process or (process == 0 and number >= processes)]
    own = _union([manifests[number] for number in mine])
    kept = {path for path, file in own.files.items() if files.get(path) == file}
    known = Known(own, {path: state for path, state in found.files.items() if path in kept})
    foreign = Scan(
        {path: state for path, state in found.files.items() if path not in kept},
        {path: mode for path, mode in found.folders.items() if path not in own.folders},
        {path: target for path, target in found.links.items() if path not in own.links},
    )
    return Restored(known, foreign)


def _read_manifest(bucket: Bucket, folder: str, part: dict) -> Manifest:
    data = bucket.read(part["object"])
    if data is None:
        raise Unusable(f"{part['object']} is missing")
    if hashlib.sha256(data).hexdigest() != part["digest"]:
        raise Unusable(f"{part['object']} is not the manifest that was stored")
    try:
        return parse_manifest(data, folder)
    except ValueError as error:
        raise Unusable(f"{part['object']}: {error}") from error


def _union(manifests: list[Manifest]) -> Manifest:
    """All entries; those of a later manifest win. Raises Unusable where an entry lies below a file or a link."""
    files: dict[str, StoredFile] = {}
    folders: dict[str, int] = {}
    links: dict[str, str] = {}
    for manifest in manifests:
        for path in [*manifest.files, *manifest.links]:
            files.pop(path, None)
            links.pop(path, None)
        files |= manifest.files
        links |= manifest.links
        folders |= manifest.folders
    above = {str(parent) for path in [*files, *folders, *links] for parent in PurePosixPath(path).parents}
    for path in [*files, *links]:
        if path in folders or path in above:
            raise Unusable(f"{path!r} is a folder on one host, and a file or a link on another")
    return Manifest(files, folders, links)


def _write_files(bucket: Bucket, root: str, files: dict[str, StoredFile]) -> None:
    for path in files:
        os.makedirs(os.path.join(root, os.path.dirname(path)), mode=0o700, exist_ok=True)
        open(os.path.join(root, path), "xb").close()
    pieces = [
        (os.path.join(root, path), begin, piece)
        for path, file in files.items()
        for begin, piece in zip(accumulate((each.size for each in file.pieces), initial=0), file.pieces, strict=False)
        if piece.size
    ]
    with ThreadPoolExecutor(_STREAMS, "restore") as pool:
        list(pool.map(lambda place: _write_piece(bucket, *place), pieces))
    for path, file in files.items():
        place = os.path.join(root, path)
        os.chmod(place, file.mode)
        os.utime(place, ns=(file.mtime_ns, file.mtime_ns))


def _write_piece(bucket: Bucket, path: str, begin: int, piece: Piece) -> None:
    data = bytearray(piece.size)
    try:
        found = bucket.head(piece.object)
        if found and found.size_bytes == piece.size:
            bucket.read_into(piece.object, found.generation, 0, memoryview(data))
    except FileNotFoundError:
        found = None
    if found is None:
        raise Unusable(f"{piece.object} is missing")
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        raise Unusable(f"{piece.object} has other bytes than were stored")
    with open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
        file.seek(begin)
        file.write(data)
