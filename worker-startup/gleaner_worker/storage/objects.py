"""The bucket, as the worker needs it: list, read one generation, and create new objects. Objects are never deleted."""

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

import google.auth.exceptions
from google.api_core import exceptions as api
from google.cloud import storage
from requests.adapters import HTTPAdapter

from ..failures import Failure
from .disk import writing
from .downloads import Downloads
from .retry import T, brief, forget_token, retry
from .upload_content import CheckedContent, Content, sha256_of

_CONNECTIONS = 96  # kept open; the uploads of upload_streams.py need more than the client's ten
_READ_BYTES = 1 << 20
_COMPARED_BYTES = 16 << 20  # of a stored object, at once
_TIMEOUT_S = (10, 60)  # to connect, and between two reads


@dataclass(frozen=True)
class ObjectInfo:
    """One generation of an object."""

    name: str
    generation: int
    size_bytes: int
    crc32c: str  # base64, as Cloud Storage writes it
    metadata: dict[str, str]


class Contradicts(Failure):
    """An object of the name exists with other bytes. `stored` describes it."""

    def __init__(self, bucket: str, stored: ObjectInfo, found: str, made: str):
        """found, made: the digests of the stored bytes and of those that this worker made."""
        self.stored = stored
        super().__init__(
            "infrastructure",
            f"Failed to create gs://{bucket}/{stored.name}: it exists with {found}, and these are {made}; "
            "find out who wrote it",
            {"object": stored.name, "found": found, "made": made},
        )


class Bucket:
    """A client of one bucket that retries. Every method but `overwrite` raises the errors of `retry`.

    check: called before every attempt, while waiting for the next attempt, and between the parts of a large upload. An
    error of `check` ends the request, so that work without a lease stops here too.
    downloads: counts the bytes of `download` and `read_into`.
    others: the client of other buckets, where the credentials of `client` are good for this bucket alone.
    """

    def __init__(
        self,
        client: storage.Client,
        name: str,
        check: Callable[[], None] = lambda: None,
        downloads: Downloads | None = None,
        others: storage.Client | None = None,
    ):
        self.client = client
        self._others = others or client
        self.name = name
        self._bucket = client.bucket(name)
        self.check = check
        self.downloads = downloads

    def checked(self, check: Callable[[], None], downloads: Downloads | None = None) -> "Bucket":
        """The same bucket with another `check`."""
        return Bucket(self.client, self.name, check, downloads or self.downloads, self._others)

    def named(self, name: str) -> "Bucket":
        """The bucket `name`, with the same `check`."""
        client = self.client if name == self.name else self._others
        return Bucket(client, name, self.check, self.downloads, self._others)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """The newest generation of every object under `prefix`, by name."""
        fields = "items(name,generation,size,crc32c,metadata),nextPageToken"
        return self._retry(
            f"list gs://{self.name}/{prefix}",
            lambda: [
                _info(b)
                for b in self.client.list_blobs(
                    self._bucket, prefix=prefix, fields=fields, retry=None, timeout=_TIMEOUT_S
                )
            ],
        )

    def head(self, name: str) -> ObjectInfo | None:
        """The newest generation of the object; None without the object."""
        return self._retry(f"read the metadata of gs://{self.name}/{name}", lambda: self._head(name))

    def download(self, name: str, path: str, generation: int | None = None) -> None:
        """Writes the object, as stored, to `path`. Raises FileNotFoundError when the bucket lacks that generation."""

        def fetch() -> None:
            blob = self._bucket.blob(name, generation=generation)
            with writing(path):
                blob.download_to_filename(path, raw_download=True, checksum="crc32c", retry=None, timeout=_TIMEOUT_S)

        self._retry(f"download gs://{self.name}/{name}", fetch)
        self._count(os.path.getsize(path))

    def read(self, name: str) -> bytes | None:
        """The stored bytes of the newest generation; None without the object."""
        try:
            return self._retry(
                f"read gs://{self.name}/{name}",
                lambda: self._bucket.blob(name).download_as_bytes(
                    raw_download=True, checksum="crc32c", retry=None, timeout=_TIMEOUT_S
                ),
            )
        except FileNotFoundError:
            return None

    def read_range(self, name: str, generation: int, begin: int, end: int) -> bytes:
        """Bytes begin to end (exclusive; fewer where the object ends) of that generation. Raises FileNotFoundError."""
        return self._retry(
            f"read gs://{self.name}/{name}",
            lambda: self._bucket.blob(name, generation=generation).download_as_bytes(
                start=begin, end=end - 1, raw_download=True, checksum=None, retry=None, timeout=_TIMEOUT_S
            ),
        )

    def read_into(self, name: str, generation: int, begin: int, target: memoryview) -> None:
        """Fills `target` with the bytes of that generation from `begin`. Raises FileNotFoundError.

        The client's own downloads copy 8 KB at a time under the interpreter's lock, so threads wait for each other.
        """
        url = (
            f"{self.client.api_endpoint}/download/storage/v1/b/{quote(self.name, safe='')}/o/{quote(name, safe='')}"
            f"?alt=media&generation={generation}"
        )
        # Without the encoding, the service would decompress an object that is stored as gzip.
        headers = {"Range": f"bytes={begin}-{begin + len(target) - 1}", "Accept-Encoding": "gzip"}

        def fetch() -> None:
            with self.client._http.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
                if not response.ok:
                    raise api.from_http_response(response)
                if response.headers.get("Content-Length") != str(len(target)):
                    raise ConnectionError(f"{name} came with another range of bytes")
                rest = target
                while len(rest):
                    count = response.raw.readinto(rest[:_READ_BYTES])
                    if not count:
                        raise ConnectionError(f"{name} ended {len(rest)} bytes early")
                    rest = rest[count:]
                    self._count(count)
                    self.check()

        self._retry(f"read gs://{self.name}/{name}", fetch)

    def _count(self, received: int) -> None:
        if self.downloads:
            self.downloads.add_from_bucket(self.name, received)

    def create(
        self,
        name: str,
        content: Content,
        metadata: dict[str, str],
        content_type: str,
        custom_time: datetime | None = None,
        sent: Callable[[int], None] = lambda _size: None,
    ) -> ObjectInfo | None:
        """Uploads a new object and returns None. An object of that name is never overwritten.

        Returns an object that has the same bytes already. Raises Contradicts where it has others.

        sent: receives the bytes as they are sent, those of a retry too.
        The server compares the crc32c of the bytes that it receives with the content's before the object exists.
        """

        def upload() -> ObjectInfo | None:
            blob = self._bucket.blob(name)
            blob.metadata = metadata
            if custom_time is not None:
                blob.custom_time = custom_time
            blob.crc32c = content.crc32c
            try:
                blob.upload_from_file(
                    CheckedContent(content, self.check, sent),
                    rewind=True,
                    size=content.size,
                    content_type=content_type,
                    if_generation_match=0,
                    checksum=None,  # set above, so the client does not compute it again
                    retry=None,
                    timeout=_TIMEOUT_S,
                )
            except api.PreconditionFailed:
                if existing := self._head(name):
                    return existing
                raise ConnectionError(f"{name} existed and was deleted; trying again") from None
            except api.Forbidden:
                # An account without the right to delete may get 403 for an existing object, in place of 412.
                with contextlib.suppress(api.Forbidden):
                    if existing := self._head(name):
                        return existing
                raise
            except api.BadRequest as error:
                if "crc32c" not in str(error).lower():
                    raise
                raise ConnectionError(f"{name} was damaged in transit: {brief(error)}") from error
            return None

        stored = self._retry(f"create gs://{self.name}/{name}", upload)
        if stored:
            self._compare(stored, content)
        return stored

    def _compare(self, stored: ObjectInfo, content: Content) -> None:
        """Raises Contradicts for other bytes. Bytes of any CRC-32C can be made, so equal ones are read and hashed."""
        found = f"{stored.size_bytes} bytes of crc32c {stored.crc32c}"
        made = f"{content.size} bytes of crc32c {content.crc32c}"
        if found != made:
            raise Contradicts(self.name, stored, found, made)
        digest = hashlib.sha256()
        try:
            for begin in range(0, stored.size_bytes, _COMPARED_BYTES):
                end = min(begin + _COMPARED_BYTES, stored.size_bytes)
                digest.update(self.read_range(stored.name, stored.generation, begin, end))
        except FileNotFoundError as error:
            raise Failure(
                "infrastructure",
                f"Failed to create gs://{self.name}/{stored.name}: it existed and was deleted; try again",
            ) from error
        if digest.hexdigest() != (sha256 := sha256_of(content)):
            found, made = f"bytes of sha256 {digest.hexdigest()}", f"bytes of sha256 {sha256}"
            raise Contradicts(self.name, stored, found, made)

    def _retry(self, action: str, call: Callable[[], T]) -> T:
        return retry(self.client, self.name, action, call, self.check)

    def overwrite(self, name: str, data: bytes, content_type: str) -> None:
        """Writes the agent's log: one attempt, because the next write repeats it."""
        try:
            self._bucket.blob(name).upload_from_string(
                data, content_type=content_type, checksum="crc32c", retry=None, timeout=_TIMEOUT_S
            )
        except api.Forbidden:
            forget_token(self.client)
            raise

    def _head(self, name: str) -> ObjectInfo | None:
        blob = self._bucket.get_blob(name, retry=None, timeout=_TIMEOUT_S)
        return _info(blob) if blob else None


def make_client(project: str | None, credentials=None) -> storage.Client:
    """A client with `credentials`, or with those of this machine. An emulator needs no credentials. Raises Failure."""
    # Otherwise the client reads the bucket's metadata for traces, and workers lack the permission for that.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    is_own = credentials is None and not os.environ.get("STORAGE_EMULATOR_HOST")
    try:
        client = storage.Client(project=project if is_own else project or "local", credentials=credentials)
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise Failure(
            "infrastructure",
            f"Failed to open Cloud Storage: {brief(error)}; sign in with `gcloud auth application-default login`",
        ) from error
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
    return client


def _info(blob: storage.Blob) -> ObjectInfo:
    # The client also types blobs that Cloud Storage has not described yet.
    size, generation = int(blob.size), int(blob.generation)  # pyrefly: ignore[bad-argument-type]
    return ObjectInfo(str(blob.name), generation, size, blob.crc32c, dict(blob.metadata or {}))
