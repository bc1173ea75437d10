"""Files of shards, in a folder of this machine or in a bucket, read by ranges from any number of threads."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .errors import MissingPackage, ShardError
from .seekable import File

PARALLEL = 10  # requests at once; a client of Cloud Storage keeps as many connections
_RANGE_BYTES = 1 << 24
_TIMEOUT_S = (10, 60)
_GS = re.compile(r"gs://([^/]+)/?(.*)")


def open_file(where: str) -> File:
    """Opens a path of this machine, or an object gs://BUCKET/NAME. Raises FileNotFoundError."""
    if match := _GS.fullmatch(where):
        bucket = _bucket(match[1])
        blob = bucket.get_blob(match[2], timeout=_TIMEOUT_S)
        if blob is None:
            raise FileNotFoundError(f"Failed to open {where}: there is no such object; pass the name of a shard")
        return CloudFile(match[1], match[2], int(blob.size), int(blob.generation))  # pyrefly: ignore[bad-argument-type]
    return LocalFile(where, os.path.getsize(where))


def open_folder(where: str) -> "Folder":
    """Opens a folder of this machine, or a prefix gs://BUCKET/PREFIX. Reads nothing."""
    if match := _GS.fullmatch(where):
        return CloudFolder(match[1], match[2].rstrip("/"))
    return LocalFolder(os.path.abspath(where))


@dataclass(frozen=True)
class LocalFile:
    """A file of this machine. url: its path. `read` raises OSError, and ShardError where the file is cut short."""

    url: str
    size: int

    def read(self, begin: int, end: int) -> bytes | memoryview:
        data = np.empty(end - begin, np.uint8)
        self.read_into(begin, end, data)
        return memoryview(data)

    def read_into(self, begin: int, end: int, target: np.ndarray) -> None:
        """Reads the same bytes into an array of that size."""
        view, done = memoryview(target.reshape(-1).view(np.uint8)), 0
        with open(self.url, "rb", buffering=0) as file:
            file.seek(begin)
            while done < len(view) and (count := file.readinto(view[done:])):
                done += count
        _whole(view[:done], begin, end, self.url)


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine. url: its absolute path."""

    url: str

    def files(self) -> dict[str, File]:
        """Every file in the folder and its subfolders, by its path in the folder. Raises FileNotFoundError."""
        if not os.path.isdir(self.url):
            raise FileNotFoundError(f"Failed to open {self.url}: there is no such folder; pass the folder of a run")
        files: dict[str, File] = {}
        for folder, _, names in os.walk(self.url):
            for name in names:
                path = os.path.join(folder, name)
                files[os.path.relpath(path, self.url).replace(os.sep, "/")] = LocalFile(path, os.path.getsize(path))
        return files

    def others(self) -> list[str]:
        """The paths of what is neither a file nor a folder, such as symbolic links."""
        paths = (os.path.join(folder, name) for folder, *found in os.walk(self.url) for name in sum(found, []))
        return [path for path in paths if not (stat.S_ISREG(mode := os.lstat(path).st_mode) or stat.S_ISDIR(mode))]


@dataclass(frozen=True)
class CloudFile:
    """One generation of an object, so that one read never mixes two generations."""

    bucket: str
    name: str
    size: int
    generation: int

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/{self.name}"

    def read(self, begin: int, end: int) -> bytes | memoryview:
        if end - begin <= _RANGE_BYTES:
            return self._read(begin, end)
        starts = range(begin, end, _RANGE_BYTES)
        with ThreadPoolExecutor(PARALLEL, "range") as pool:
            return b"".join(pool.map(lambda start: self._read(start, min(start + _RANGE_BYTES, end)), starts))

    def _read(self, begin: int, end: int) -> bytes:
        if begin >= end:
            return b""
        from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

        blob = _bucket(self.bucket).blob(self.name, generation=self.generation)
        try:
            data = blob.download_as_bytes(
                start=begin, end=end - 1, raw_download=True, checksum=None, timeout=_TIMEOUT_S
            )
        except (NotFound, RequestRangeNotSatisfiable) as error:
            raise ShardError(
                f"{self.url} cannot be read: it was replaced or deleted after it was opened; open it again"
            ) from error
        return _whole(data, begin, end, self.url)


@dataclass(frozen=True)
class CloudFolder:
    """The objects under a prefix of a bucket."""

    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}"

    def files(self) -> dict[str, File]:
        """Every object under the prefix, by its name below the prefix. Raises FileNotFoundError without any."""
        prefix = f"{self.prefix}/" if self.prefix else ""
        fields = "items(name,generation,size),nextPageToken"
        blobs = _client().list_blobs(self.bucket, prefix=prefix, fields=fields, timeout=_TIMEOUT_S)
        files: dict[str, File] = {
            blob.name.removeprefix(prefix): CloudFile(self.bucket, blob.name, int(blob.size), int(blob.generation))
            for blob in blobs
        }
        if not files:
            raise FileNotFoundError(
                f"Failed to open {self.url}: there are no objects of that name; pass gs://BUCKET/activations/RUN"
            )
        return files

    def others(self) -> list[str]:
        """A bucket has objects alone."""
        return []


Folder = LocalFolder | CloudFolder


def _whole(data, begin: int, end: int, url: str):
    if len(data) != end - begin:
        raise ShardError(
            f"{url} cannot be read: it ends at byte {begin + len(data)}, before byte {end}; it was cut short"
        )
    return data


def _bucket(name: str):
    return _client().bucket(name)


def _client():
    return _client_of(os.environ.get("STORAGE_EMULATOR_HOST"), os.getpid())


@lru_cache(maxsize=4)
def _client_of(emulator: str | None, process: int):
    """process: a fork would share the connections of a client, and mix up their answers."""
    try:
        from google.cloud import storage
    except ImportError:
        raise MissingPackage("read gs://", "google-cloud-storage") from None
    from google.auth.exceptions import DefaultCredentialsError

    # By default the client asks for the bucket's own metadata in the background, which readers may not see.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    try:
        return storage.Client(project="local") if emulator else storage.Client()
    except DefaultCredentialsError as error:
        raise PermissionError(
            "Failed to read gs://: there are no credentials; run: gcloud auth application-default login"
        ) from error
