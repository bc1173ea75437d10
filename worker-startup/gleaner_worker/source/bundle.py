"""A code bundle of the bucket: fetched by its sha256, and unpacked where no job can change it."""

import gzip
import hashlib
import os
import shutil
import tarfile
import zlib

from gleaner_reader.format.limits import MAX_TAR_BYTES, MAX_TAR_FACTS, MAX_TAR_FILES, MAX_TAR_HEADER_BYTES

from ..failures import Failure
from ..jobs.prepared_code import SourceFailed
from ..storage.objects import Bucket
from .sealed import use

_PIECE_BYTES = 1 << 15
# tarfile also raises the errors of number parsing and of zlib. It reads a header of a header by a call of itself.
DAMAGED = (OSError, EOFError, ValueError, OverflowError, RecursionError, tarfile.TarError, zlib.error)


def unpack_bundle(sha256: str, jobs: str, bucket: Bucket) -> str:
    """Returns the folder of the bundle's files. Raises SourceFailed with one line that names the bundle."""
    name = f"code/{sha256}.tar.gz"
    bundles = os.path.join(jobs, "bundles")
    os.makedirs(bundles, mode=0o755, exist_ok=True)
    folder = os.path.join(bundles, sha256)
    if os.path.isdir(folder):
        return use(folder)
    archive, unfinished = os.path.join(bundles, f".{sha256}.tar.gz"), os.path.join(bundles, f".{sha256}")
    try:
        bucket.download(name, archive)
        if (actual := _sha256(archive)) != sha256:
            raise SourceFailed(
                "source",
                f"Failed to use gs://{bucket.name}/{name}: its sha256 is {actual}, not {sha256}; upload the code again",
            )
        shutil.rmtree(unfinished, ignore_errors=True)
        os.mkdir(unfinished)
        os.chmod(unfinished, 0o755)
        unpack_archive(archive, unfinished)
        os.rename(unfinished, folder)
    except (Failure, *DAMAGED) as error:
        reason = error.reason if isinstance(error, Failure) else str(error)
        raise SourceFailed("source", f"Failed to use gs://{bucket.name}/{name}: {reason}") from error
    finally:
        for path in (archive, archive + ".part"):
            if os.path.exists(path):
                os.unlink(path)
        shutil.rmtree(unfinished, ignore_errors=True)
    return use(folder)


def unpack_archive(archive: str, folder: str) -> None:
    """Writes only files and folders, because other members may point outside the folder. Raises DAMAGED."""
    size = number = 0
    with gzip.open(archive) as content, tarfile.open(fileobj=_SmallReads(content), mode="r:") as tar:  # type: ignore[arg-type]
        while member := tar.next():
            tar.members.clear()  # each member holds its extended facts
            number, size = number + 1, size + member.size
            if len(member.pax_headers) > MAX_TAR_FACTS:
                raise tarfile.TarError(f"{_shown(member.name)} has more than {MAX_TAR_FACTS} extended facts")
            if number > MAX_TAR_FILES or size > MAX_TAR_BYTES:
                raise tarfile.TarError(
                    f"it has more than {MAX_TAR_FILES} files or {MAX_TAR_BYTES} bytes; leave files out"
                )
            path = os.path.join(folder, *_parts_of(member.name))
            if member.isdir():
                _make_folders(path, folder)
            elif member.isreg() and path != folder:
                _make_folders(os.path.dirname(path), folder)
                with open(path, "xb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file, _PIECE_BYTES)  # type: ignore[arg-type]
                os.chmod(path, 0o755 if member.mode & 0o100 else 0o644)
            else:
                raise tarfile.TarError(f"{_shown(member.name)} is neither a file nor a folder; leave it out")


class _SmallReads:
    """The content of an archive for tarfile, which reads a name or extended facts of any stated size at once."""

    def __init__(self, file: gzip.GzipFile):
        self._file = file
        self.tell, self.seek = file.tell, file.seek

    def read(self, size: int) -> bytes:
        if size > MAX_TAR_HEADER_BYTES:
            raise tarfile.TarError(
                f"it has a name or extended facts of {size} bytes; the limit is {MAX_TAR_HEADER_BYTES}; pack it again"
            )
        return self._file.read(size)


def _parts_of(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise tarfile.TarError(f"{_shown(name)} points outside the bundle; leave it out")
    return parts


def _make_folders(path: str, top: str) -> None:
    if path != top and not os.path.isdir(path):
        _make_folders(os.path.dirname(path), top)
        os.mkdir(path)
        os.chmod(path, 0o755)


def _shown(name: str) -> str:
    return repr(name)[:200]


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
