"""Requests to a hub: a model's files at a commit, each resumed after an interruption.

huggingface_hub defines the names, the headers, the connections and the errors. The bytes go into a partial file here,
which outlives the process, and a drain ends a transfer or a wait. hf_hub_download of version 2.4.0 deletes the partial
file, waits as long as the hub asks, and has no way to end early. Xet stays off: for the same bytes it needs a second
cache on the disk and connections to more hosts.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..failures import Failure
from ..storage.disk import writing
from ..waits import wait, wait_for_each
from .hub_client import FILE_HEADERS, TIMEOUT_S, hub_client, is_lasting, trust

log = logging.getLogger(__name__)

GIVE_UP_AFTER_S = 600.0
FIRST_GIVE_UP_AFTER_S = 120.0  # of the first answer: a hub that never answers may be mistyped
FIRST_WAIT_S = 0.5
COMMIT = re.compile(r"[0-9a-f]{40}")
_SLOWEST_BYTES_PER_S = 1_000_000  # a file may take GIVE_UP_AFTER_S, and its size at this rate
FIRST_TIMEOUT_S = 10.0  # of the first answer, so that the status names a silent hub within a minute
ANSWER_S = 30.0  # of a whole answer; the client's timeouts above begin again at every byte
PIECE_S = 20.0  # of PIECE_BYTES: a slower transfer is an error with a cause, and resumes
PIECE_BYTES = 256 * 1024  # of a write; a drain or a crash loses a few pieces
_CONCURRENT_FILES = 4
_MAX_CAUSE_CHARS = 100  # worker-api accepts 400 characters with the host
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ELSEWHERE = "try again, or copy the model to gs://… and set `model` to that address"
T = TypeVar("T")


class Session:
    """Requests to the hub at `endpoint` about one model, with one token. `check` may raise to end a request.

    Methods raise Failure with the remedy. report: receives the cause of each failed attempt, and None after a success.
    received: receives the number of bytes of each piece of a file.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        token: str | None,
        check: Callable[[], None],
        report: Callable[[str | None], None],
        received: Callable[[int], None] = lambda count: None,
    ):
        self.endpoint, self.model, self.check, self._report = endpoint, model, check, report
        self._received = received
        self._token = token
        self._hub = hub_client()
        trust(endpoint)

    def list_files(self, revision: str | None) -> tuple[str, dict[str, int | None]]:
        """(commit, {name: size}) with every file of the model."""
        api = self._hub.HfApi(endpoint=self.endpoint)
        options = {"timeout": FIRST_TIMEOUT_S, "files_metadata": True, "token": self._token or False}

        def ask() -> tuple[str, dict[str, int | None]]:
            info = self._answer(lambda: api.model_info(self.model, revision=revision, **options), self.check)
            if not isinstance(info.sha, str) or not COMMIT.fullmatch(info.sha):
                raise ValueError("it names no commit")
            return info.sha, {str(file.rfilename): file.size for file in info.siblings or []}

        give_up = time.monotonic() + FIRST_GIVE_UP_AFTER_S
        commit, sizes = self._retry(ask, self.check, revision, give_up)
        if revision and COMMIT.fullmatch(revision) and commit != revision:
            raise self._invalid_answer(f"asked for commit {revision}, it names {commit}")
        return commit, {name: size if isinstance(size, int) else None for name, size in sizes.items()}

    def fetch_all(self, names: list[str], commit: str, folder: str) -> dict[str, str]:
        """Downloads the files into `folder`; returns the sha256 of each file for which the hub states it."""
        failed: list[BaseException] = []

        def check() -> None:
            self.check()
            if failed:
                raise failed[0]

        def fetch(name: str) -> str | None:
            try:
                return None if failed else self._fetch(name, commit, folder, check)
            except BaseException as error:
                failed.append(error)
                return None

        with ThreadPoolExecutor(_CONCURRENT_FILES) as pool:
            stated = list(pool.map(fetch, names))
        if failed:
            raise failed[0]
        return {name: sha256 for name, sha256 in zip(names, stated, strict=True) if sha256}

    def _fetch(self, name: str, commit: str, folder: str, check: Callable[[], None]) -> str | None:
        url = self._hub.hf_hub_url(self.model, name, revision=commit, endpoint=self.endpoint)
        options = {"timeout": TIMEOUT_S, "token": self._token or False, "endpoint": self.endpoint}

        def ask() -> Any:
            return self._answer(lambda: self._hub.get_hf_file_metadata(url, **options), check)

        facts = self._retry(ask, check, commit)
        if facts.commit_hash not in (None, commit):
            raise self._invalid_answer(f"{name} of commit {commit} comes from {facts.commit_hash!r:.100}")
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            part = f"{path}.part"
            give_up = time.monotonic() + GIVE_UP_AFTER_S + (facts.size or 0) / _SLOWEST_BYTES_PER_S

            def check_pace() -> None:
                check()
                if time.monotonic() > give_up:
                    raise self._unreachable(f"{name} arrives too slowly")

            with writing(part):
                self._retry(lambda: self._receive(url, part, facts.size, check_pace), check, commit, give_up)
            os.rename(part, path)
        return facts.etag if facts.etag and _SHA256.fullmatch(facts.etag) else None

    def _receive(self, url: str, part: str, size: int | None, check: Callable[[], None]) -> None:
        """Appends the missing bytes to `part`. Raises _Incomplete when the connection ends before the file."""
        with open(part, "ab") as file:
            begin = file.tell()
            if 0 < begin == size:
                return
            with closing(wait_for_each(lambda: self._read(url, begin), ANSWER_S, check)) as answer:
                status = next(answer)
                if status != 206:
                    file.truncate(0)  # the hub sends the whole file, or `part` has more
                if status == 416:
                    raise _Incomplete(f"{begin} bytes are more than the file has")
                for piece in answer:
                    file.write(piece)
                    self._received(len(piece))
                    if size is not None and file.tell() > size:
                        raise _Incomplete(f"received more than {size} bytes")
        received = os.path.getsize(part)
        if size is not None and received != size:
            raise _Incomplete(f"received {received} of {size} bytes")

    def _read(self, url: str, begin: int) -> Iterator[Any]:
        """The status of the answer, and then the pieces of the file from `begin`. Raises TimeoutError when too slow."""
        headers = self._hub.utils.build_hf_headers(token=self._token or False) | FILE_HEADERS
        if begin:
            headers["range"] = f"bytes={begin}-"
        with self._hub.get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response:
            if response.status_code != 416:
                self._hub.utils.hf_raise_for_status(response)
            yield response.status_code
            piece, began = bytearray(), time.monotonic()
            try:
                for received in response.iter_bytes():
                    piece += received
                    if len(piece) >= PIECE_BYTES:
                        yield piece
                        piece, began = bytearray(), time.monotonic()
                    elif time.monotonic() - began > PIECE_S:
                        raise TimeoutError(f"less than {PIECE_BYTES} bytes in {PIECE_S:.0f} s")
            except (self._hub.errors.HTTPError, TimeoutError):
                yield piece  # the next attempt resumes behind it
                raise
            yield piece

    def _answer(self, ask: Callable[[], T], check: Callable[[], None]) -> T:
        """The result of one request. Raises TimeoutError after ANSWER_S."""
        (answer,) = wait_for_each(lambda: [ask()], ANSWER_S, check)
        return answer

    def _retry(
        self, call: Callable[[], T], check: Callable[[], None], revision: str | None, give_up: float | None = None
    ) -> T:
        """Calls `call` until it succeeds; retries transient errors until `give_up`. Other errors become a Failure.

        Raised `from None`: the client's errors hold signed addresses and headers, which must not reach a traceback.
        """
        give_up = give_up or time.monotonic() + GIVE_UP_AFTER_S
        errors = self._hub.errors
        wait_s, tries = FIRST_WAIT_S, 0
        while True:
            check()
            try:
                value = call()
                if tries:
                    self._report(None)
                return value
            except errors.OfflineModeIsEnabled:
                raise Failure(
                    "model", f"Failed to find the model {self.model}: HF_HUB_OFFLINE is set; unset it"
                ) from None
            except errors.HfHubHTTPError as error:
                if error.response.status_code not in _TRANSIENT:
                    raise self._refusal(error, revision) from None
                cause = f"it answers {error.response.status_code}"
            # HTTPError is the error of the client's HTTP library when no answer arrives.
            except (errors.HTTPError, _Incomplete, TimeoutError) as error:
                if is_lasting(error):
                    raise self._invalid_answer(self._brief(error)) from None
                cause = self._brief(error)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise self._invalid_answer(self._brief(error)) from None
            if time.monotonic() + wait_s > give_up:
                raise self._unreachable(cause) from None
            tries += 1
            waits_for = f"{urlsplit(self.endpoint).netloc}: {cause[:_MAX_CAUSE_CHARS]}, try {tries}"
            log.warning("Waiting for %s; trying again in %.1f s", waits_for, wait_s)
            self._report(waits_for)
            wait(wait_s, check)
            wait_s = min(wait_s * 2, 15.0)

    def _refusal(self, error: Any, revision: str | None) -> Failure:
        """The meaning of the hub's answer, and the remedy."""
        errors, status = self._hub.errors, error.response.status_code
        secret = "the secret that GLEANER_HF_TOKEN_SECRET names"
        account = "the token's account" if self._token else f"an account, and store a token of it in {secret}"
        if isinstance(error, errors.RevisionNotFoundError):
            cause = f"it has no revision {revision!r}; set `revision` to one that it has"
        elif isinstance(error, errors.GatedRepoError) or status == 403:
            cause = f"it is gated or private; accept its conditions at {self.endpoint}/{self.model} with {account}"
        elif isinstance(error, errors.RemoteEntryNotFoundError) or status not in (401, 404):
            return Failure("hub", f"Failed to download the model {self.model}: {self._brief(error)}; {_ELSEWHERE}")
        elif status == 401 and self._token:
            cause = f"{self.endpoint} refuses the token; store a valid one in {secret}, or set `model` to another one"
        else:
            cause = f"{self.endpoint} shows no such model; set `model` to its id"
            cause += f", or if it is private open it to {account}"
        return Failure("model", f"Failed to find the model {self.model} ({status}): {cause}")

    def _unreachable(self, cause: str) -> Failure:
        return Failure(
            "hub",
            f"Failed to download the model {self.model} from {self.endpoint}: {cause}; let this machine reach it, or "
            "copy the model's folder to gs://… and set `model` to that address",
        )

    def _invalid_answer(self, problem: str) -> Failure:
        return Failure(
            "hub",
            f"Failed to download the model {self.model}: {self.endpoint} does not answer as a hub does: {problem}; "
            f"{_ELSEWHERE}",
        )

    def _brief(self, error: Exception) -> str:
        """One short line, without the queries of signed addresses and without the token."""
        text = re.sub(r"\?[^\s'\"<>]*", "", " ".join(str(error).split()))
        if self._token:
            text = text.replace(self._token, "[the token]")
        return f"{type(error).__name__}: {text[:300]}"


class _Incomplete(Exception):
    """The connection ended before the file; the next attempt resumes there."""
