"""The manifest of one version on one host: its files, and the objects with their bytes."""

import json
import re
from dataclasses import asdict, dataclass, field

MANIFEST = "manifest.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Piece:
    """A part of a file, which is one object."""

    object: str
    size: int
    sha256: str


@dataclass(frozen=True)
class StoredFile:
    """A file of a version: its pieces hold its bytes in order."""

    mode: int
    mtime_ns: int
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


@dataclass(frozen=True)
class Manifest:
    """All that one host has of a version, by path below the folder."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


def parse_manifest(data: bytes, folder: str) -> Manifest:
    """Raises ValueError for a manifest that leads out of the folder, or names objects outside of `folder`."""
    try:
        raw = json.loads(data)
        files = {
            _inside(path): StoredFile(
                int(file["mode"]), int(file["mtime_ns"]), tuple(_piece(piece, folder) for piece in file["pieces"])
            )
            for path, file in raw["files"].items()
        }
        folders = {_inside(path): int(mode) for path, mode in raw["folders"].items()}
        links = {_inside(path): str(target) for path, target in raw["links"].items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no manifest ({type(error).__name__})") from error
    return Manifest(files, folders, links)


def _piece(raw: dict, folder: str) -> Piece:
    piece = Piece(str(raw["object"]), int(raw["size"]), str(raw["sha256"]))
    if not re.fullmatch(re.escape(folder) + r"epoch_\d+/host_\d+/[\d/-]+", piece.object) or piece.size < 0:
        raise ValueError(f"{piece.object!r:.200} is no object of this job")
    if not _SHA256.fullmatch(piece.sha256):
        raise ValueError(f"{piece.object} has no SHA-256")
    return piece


def _inside(path: str) -> str:
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r:.200} is no path in the folder")
    return path
