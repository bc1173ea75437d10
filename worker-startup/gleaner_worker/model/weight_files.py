"""The safetensors files of a model, on this machine's disk or in a bucket, where any range of their bytes is read."""

import hashlib
import os
from dataclasses import dataclass, field

from ..failures import Failure
from ..storage.objects import Bucket, ObjectInfo

_HASHED_AT_ONCE = 32 << 20


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

    def read_into(self, begin: int, target: memoryview) -> None:
        """Fills `target` with the bytes from `begin`. Raises the errors of the bucket."""
        try:
            self.bucket.read_into(self.info.name, self.info.generation, begin, target)
        except FileNotFoundError as error:
            raise Failure(
                "model",
                f"Failed to read gs://{self.bucket.name}/{self.info.name}: it was replaced or deleted after the model "
                "was opened; give each model an address of its own, and retry the run",
            ) from error


WeightFile = DiskFile | BucketFile


def sha256_of(file: WeightFile) -> str:
    """The sha256 of the whole file, as hex. Raises the errors of `read_into`."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(min(_HASHED_AT_ONCE, file.size_bytes)))
    for begin in range(0, file.size_bytes, _HASHED_AT_ONCE):
        part = buffer[: file.size_bytes - begin]
        file.read_into(begin, part)
        digest.update(part)
    return digest.hexdigest()
