"""The files of a model, on this machine's disk or in a bucket, where any range of their bytes is read."""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ...failures import Failure
from ...storage.objects import Bucket, ObjectInfo

_CONCURRENT_FILES = 16


@dataclass(frozen=True)
class DiskFile:
    """A file of this machine's disk. Its methods raise OSError."""

    path: str

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def size_bytes(self) -> int:
        return os.path.getsize(self.path)

    @property
    def digest(self) -> str:
        """The sha256 of the whole file, as hex."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def read_into(self, begin: int, target: memoryview) -> None:
        """Fills `target`, which is writable bytes, with the bytes of the file from `begin`."""
        with open(self.path, "rb", buffering=0) as file:
            file.seek(begin)
            while len(target):
                count = file.readinto(target)
                if not count:
                    raise OSError(f"{self.name} was cut short while it was read")
                target = target[count:]


@dataclass(frozen=True)
class BucketFile:
    """One generation of an object, so that every read is of the same bytes."""

    bucket: Bucket = field(compare=False, repr=False)
    info: ObjectInfo

    @property
    def name(self) -> str:
        return self.info.name.rpartition("/")[2]

    @property
    def size_bytes(self) -> int:
        return self.info.size_bytes

    @property
    def address(self) -> str:
        return f"gs://{self.bucket.name}/{self.info.name}"

    @property
    def digest(self) -> str:
        """The digest of the bytes that the listing states: no byte is read, and every copy of the object has it too."""
        return f"crc32c:{self.info.crc32c}:{self.info.size_bytes}"

    def read_into(self, begin: int, target: memoryview) -> None:
        """Fills `target` with the bytes from `begin`. Raises the errors of the bucket."""
        try:
            self.bucket.read_into(self.info.name, self.info.generation, begin, target)
        except FileNotFoundError as error:
            raise self._replaced() from error

    def copy_to(self, folder: str, name: str | None = None) -> None:
        """Downloads the object into `folder`, under its own name or `name`. Raises the errors of the bucket."""
        path = os.path.join(folder, name or self.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            self.bucket.download(self.info.name, path, self.info.generation)
        except FileNotFoundError as error:
            raise self._replaced() from error

    def _replaced(self) -> Failure:
        return Failure(
            "hub",
            f"Failed to read {self.address}: it was replaced or deleted after the model was opened; give each model an "
            "address of its own, and try again",
        )


@dataclass(frozen=True)
class HubFile:
    """A file of a hub, of which some bytes are read there. Its method raises the errors of the hub."""

    name: str
    size_bytes: int
    read_into: Callable[[int, memoryview], None] = field(compare=False, repr=False)


WeightFile = DiskFile | BucketFile | HubFile


def hash_files(files: Mapping[str, WeightFile], model: str) -> dict[str, str]:
    """The digest of each file, by the same names; several files are read at once. Raises Failure."""
    try:
        with ThreadPoolExecutor(_CONCURRENT_FILES) as pool:
            digests = pool.map(lambda file: file.digest, files.values())  # type: ignore[union-attr]  # none of a hub
            return dict(zip(files, digests, strict=True))
    except OSError as error:
        raise Failure("model", f"Failed to read the model {model}: {error}; copy the model again") from error
