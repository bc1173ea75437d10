"""Requests to a hub: a model's files at a commit, each resumed after an interruption.

The bytes go into a partial file, which outlives the process, and a drain ends a transfer or a wait. A hub may redirect
anywhere and answer without end: a redirect leads to https alone, the token goes to the hub alone, and each answer has a
limit of time.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import requests
import urllib3.exceptions

from ...failures import Failure
from ...storage.disk import writing
from ...waits import wait, wait_for_each
from .weight_files import DiskFile

log = logging.getLogger(__name__)
logging.getLogger("urllib3").setLevel(logging.WARNING)  # its other records have signed addresses

GIVE_UP_AFTER_S = 600.0
FIRST_GIVE_UP_AFTER_S = 120.0  # of the list of files: a hub that never answers may be mistyped
FIRST_WAIT_S = 0.5
ANSWER_S = 20.0  # of an answer, and of each piece of a file: a slower transfer is an error with a cause, and resumes
PIECE_BYTES = 256 * 1024  # of a write; a drain or a crash loses a few pieces
MAX_LIST_BYTES = 64 << 20
COMMIT = re.compile(r"[0-9a-f]{40}")
_SLOWEST_BYTES_PER_S = 1_000_000  # a file may take GIVE_UP_AFTER_S, and its size at this rate
_CONCURRENT_FILES = 4
_MOST_REDIRECTS = 10
_MAX_CAUSE_CHARS = 100  # worker-api accepts 400 characters with the host
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_ETAG = re.compile(r'"?([0-9a-f]{64})"?')
# startup.sh and the configuration of the functions accept the same addresses.
_ENDPOINT = re.compile(
    r"(https://[A-Za-z0-9._-]+|http://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]))(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?"
)
T = TypeVar("T")


@dataclass(frozen=True)
class Hub:
    """The address of a hub.

    token: returns the token for the hub when a download begins; it is never stored. Its argument is called during
    waits, and may raise. report: receives the cause of each failed attempt, and None when the hub answers again.
    received: receives the number of bytes of each piece of a file.
    """

    endpoint: str
    token: Callable[[Callable[[], None]], str | None] = field(default=lambda check: None, repr=False)
    report: Callable[[str | None], None] = field(default=lambda cause: None, repr=False)
    received: Callable[[int], None] = field(default=lambda count: None, repr=False)


def is_endpoint(url: str) -> bool:
    """https://HOST[:PORT][/PATH]; http only to this machine itself, because a token never travels unencrypted."""
    return bool(_ENDPOINT.fullmatch(url))


def may_ask(origin: str, endpoint: str) -> bool:
    """Whether the hub at `endpoint` may redirect to `origin`: with encryption, or within this machine."""
    return is_endpoint(origin) and (origin.startswith("https:") or endpoint.startswith("http:"))


class Session:
    """Requests to `hub` about one model at a branch, a tag or a commit; None is the branch main.

    Methods raise Failure with the remedy. check: called during waits and between the pieces of a file; it may raise.
    """

    def __init__(self, hub: Hub, model: str, revision: str | None, check: Callable[[], None]):
        self._hub, self.model, self._revision, self.check = hub, model, revision, check
        self._endpoint = hub.endpoint.rstrip("/")
        self._token: str | None = None
        self._http = requests.Session()
        self._http.auth = lambda request: request  # otherwise a password of ~/.netrc would replace the token

    @cached_property
    def listing(self) -> tuple[str, dict[str, int | None]]:
        """(commit, {name: size}) with every file of the model."""
        self._token = self._hub.token(self.check)
        revision = f"/revision/{quote(self._revision, safe='')}" if self._revision else ""
        url = f"{self._endpoint}/api/models/{self.model}{revision}?blobs=true"

        def ask() -> tuple[str, dict[str, int | None]]:
            body = bytearray()
            with closing(self._answer(url, self.check)) as answer:
                next(answer)
                for piece in answer:
                    body += piece
                    if len(body) > MAX_LIST_BYTES:
                        raise ValueError(f"an answer has more than {MAX_LIST_BYTES} bytes")
            found = json.loads(body)
            commit = found.get("sha")
            if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
                raise ValueError("it names no commit")
            if self._revision and COMMIT.fullmatch(self._revision) and commit != self._revision:
                raise ValueError(f"asked for commit {self._revision}, it names {commit}")
            sizes = {str(file["rfilename"]): file.get("size") for file in found.get("siblings") or []}
            return commit, {name: size if isinstance(size, int) else None for name, size in sizes.items()}

        return self._retry(ask, self.check, time.monotonic() + FIRST_GIVE_UP_AFTER_S)

    def fetch(self, names: list[str], folder: str) -> dict[str, str]:
        """Downloads the files that `folder` lacks; returns their sha256. A file gets its name when it is complete."""
        failed: list[BaseException] = []

        def check() -> None:
            self.check()
            if failed:
                raise failed[0]

        def fetch(name: str) -> str:
            try:
                return self._fetch(name, os.path.join(folder, name), check)
            except BaseException as error:
                failed.append(error)
                raise

        names = [name for name in names if not os.path.exists(os.path.join(folder, name))]
        with ThreadPoolExecutor(_CONCURRENT_FILES) as pool:
            return dict(zip(names, pool.map(fetch, names), strict=True))

    def read_into(self, name: str, begin: int, target: memoryview) -> None:
        """Fills `target` with the bytes of a file from `begin`."""

        def read() -> bytes:
            data = bytearray()
            with closing(self._answer(self._url(name), self.check, begin)) as answer:
                skipped = begin if next(answer)[0] == 200 else 0  # it may send the whole file
                for piece in answer:
                    data += piece
                    if len(data) >= skipped + len(target):
                        return bytes(data[skipped : skipped + len(target)])
            raise ConnectionError(f"received {len(data)} of {skipped + len(target)} bytes")

        target[:] = self._retry(read, self.check, time.monotonic() + FIRST_GIVE_UP_AFTER_S)

    def _url(self, name: str) -> str:
        return f"{self._endpoint}/{self.model}/resolve/{self.listing[0]}/{quote(name)}"

    def _fetch(self, name: str, path: str, check: Callable[[], None]) -> str:
        part = f"{path}.part"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        give_up = time.monotonic() + GIVE_UP_AFTER_S + (self.listing[1][name] or 0) / _SLOWEST_BYTES_PER_S
        with writing(part):
            sha256 = self._retry(lambda: self._receive(name, part, check, give_up), check, give_up)
        os.rename(part, path)
        return sha256

    def _receive(self, name: str, part: str, check: Callable[[], None], give_up: float) -> str:
        """Appends the missing bytes to `part`; returns its sha256. Raises ConnectionError when bytes are missing."""
        (commit, sizes), received = self.listing, os.path.getsize(part) if os.path.exists(part) else 0
        size = sizes[name]
        begin = received if size is None or received < size else 0
        with open(part, "ab") as file, closing(self._answer(self._url(name), check, begin)) as answer:
            status, stated = next(answer)
            if stated.get("x-repo-commit", commit) != commit:
                raise ValueError(f"{name} of commit {commit} comes from {stated['x-repo-commit']!r:.100}")
            if status != 206:
                file.seek(0)  # the hub sends the whole file, or `part` has more
                file.truncate()
            for piece in answer:
                file.write(piece)
                self._hub.received(len(piece))
                if size is not None and file.tell() > size:
                    raise ConnectionError(f"received more than {size} bytes")
                if time.monotonic() > give_up:
                    raise TimeoutError(f"{name} arrives too slowly")
        received = os.path.getsize(part)
        if status == 416 or size not in (None, received):
            raise ConnectionError(f"received {received} of {size} bytes")
        sha256 = DiskFile(part).digest
        match = _ETAG.fullmatch(stated.get("x-linked-etag") or stated.get("etag", ""))
        if match and match[1] != sha256:
            os.remove(part)
            problem = f"{name} arrived damaged: its sha256 is {sha256}, and the hub states {match[1]}"
            if begin:  # perhaps of another file
                raise ConnectionError(problem)
            raise self._failure(problem)
        return sha256

    def _answer(self, url: str, check: Callable[[], None], begin: int = 0) -> Generator[Any, None, None]:
        """The status and the hub's headers, and then the pieces of the body. Raises TimeoutError after ANSWER_S."""
        return wait_for_each(lambda: self._read(url, begin), ANSWER_S, check)

    def _read(self, url: str, begin: int) -> Iterator[Any]:
        stated: dict[str, str] = {}
        for _ in range(_MOST_REDIRECTS):
            parts = urlsplit(url)
            origin = f"{parts.scheme}://{parts.netloc}"
            if not may_ask(origin, self._endpoint):
                raise ValueError(f"it redirects to {origin:.100}, which is no https:// address")
            headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begin}-"} if begin else {})
            is_hub = self._endpoint.split("/")[:3] == origin.split("/")
            if self._token and is_hub:
                headers["Authorization"] = f"Bearer {self._token}"
            with self._http.get(url, headers=headers, stream=True, allow_redirects=False, timeout=ANSWER_S) as answer:
                if is_hub:
                    stated |= {key.lower(): value for key, value in answer.headers.items()}
                if answer.is_redirect:
                    url = urljoin(url, answer.headers["location"])
                    continue
                if answer.status_code not in (200, 206, 416):
                    raise requests.HTTPError(response=answer)
                yield answer.status_code, stated
                if answer.status_code != 416:
                    yield from answer.iter_content(PIECE_BYTES)
                return
        raise ValueError(f"it redirects {_MOST_REDIRECTS} times")

    def _retry(self, call: Callable[[], T], check: Callable[[], None], give_up: float) -> T:
        """Calls `call` until it succeeds; retries transient errors until `give_up`. Other errors become a Failure.

        Raised `from None`: the client's errors hold signed addresses and headers, which must not reach a traceback.
        """
        wait_s, tries = FIRST_WAIT_S, 0
        while True:
            check()
            try:
                value = call()
                if tries:
                    self._hub.report(None)
                return value
            except requests.HTTPError as error:
                if error.response.status_code not in _TRANSIENT:
                    raise self._refusal(error.response) from None
                cause = f"it answers {error.response.status_code}"
            # Before the errors of connections, because an address that is none has an error of both kinds.
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise self._failure(f"{self._endpoint} does not answer as a hub does: {self._brief(error)}") from None
            except (requests.RequestException, ConnectionError, TimeoutError) as error:
                cause = self._brief(error)
            if time.monotonic() + wait_s > give_up:
                raise self._failure(f"{cause}; let this machine reach {self._endpoint}") from None
            tries += 1
            waits_for = f"{urlsplit(self._endpoint).netloc}: {cause[:_MAX_CAUSE_CHARS]}, try {tries}"
            log.warning("Waiting for %s; trying again in %.1f s", waits_for, wait_s)
            self._hub.report(waits_for)
            wait(wait_s, check)
            wait_s = min(wait_s * 2, 15.0)

    def _refusal(self, answer: requests.Response) -> Failure:
        """The meaning of the hub's answer, and the remedy."""
        status, code = answer.status_code, answer.headers.get("X-Error-Code")
        secret = "the secret that GLEANER_HF_TOKEN_SECRET names"
        account = "the token's account" if self._token else f"an account, and store a token of it in {secret}"
        if code == "RevisionNotFound":
            cause = f"it has no revision {self._revision!r}; set `revision` to one that it has"
        elif code == "GatedRepo" or status == 403:
            cause = f"it is gated or private; accept its conditions at {self._endpoint}/{self.model} with {account}"
        elif code == "EntryNotFound" or status not in (401, 404):
            return self._failure(f"{self._endpoint} answers {status}")
        elif status == 401 and self._token:
            cause = f"{self._endpoint} refuses the token; store a valid one in {secret}, or set `model` to another one"
        else:
            cause = f"{self._endpoint} shows no such model; set `model` to its id"
            cause += f", or if it is private open it to {account}"
        return Failure("model", f"Failed to find the model {self.model} ({status}): {cause}")

    def _failure(self, problem: str) -> Failure:
        return Failure(
            "hub",
            f"Failed to download the model {self.model}: {problem}; try again, or copy the model to gs://… and set "
            "`model` to that address",
        )

    def _brief(self, error: BaseException) -> str:
        """One short line about the first cause, without the queries of signed addresses and without the token."""
        while isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError) and error.__context__:
            error = error.__context__
        text = re.sub(r"\?[^\s'\"<>]*", "", " ".join(str(error).split()))
        if self._token:
            text = text.replace(self._token, "[the token]")
        return text[:300] if type(error) is ValueError else f"{type(error).__name__}: {text[:300]}"
