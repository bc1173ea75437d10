"""Private repositories.

A proxy in the agent signs the requests of git in: git runs as the user of jobs, and never has the token.
"""

import base64
import re
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests

from ..failures import Failure
from ..jobs.prepared_code import SourceFailed
from ..loopback import TIMEOUT_S, Handler, serving

_HOST = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?")
_MAX_REQUEST_BYTES = 8 << 20
_PASSED = ("accept", "content-type", "content-encoding", "git-protocol")
_RETURNED = ("content-type", "content-encoding")
# The two requests of a fetch.
_REQUESTS = {"GET": "/info/refs?service=git-upload-pack", "POST": "/git-upload-pack"}


def is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


@dataclass
class Reached:
    """Where git finds a repository, and why the host refused it, if it did."""

    address: str
    refusals: list[str] = field(default_factory=list)


class Repositories:
    """Addresses of repositories for git. host: the host whose repositories need a token, which `read_token` reads."""

    def __init__(
        self, host: str | None = None, read_token: Callable[[Callable[[], None]], str | None] = lambda check: None
    ):
        self._host, self._read_token = host, read_token

    @contextmanager
    def reach(self, repo: str, check: Callable[[], None]) -> Iterator[Reached]:
        """Signs requests in for the block. check: called while the token is read; may raise. Raises SourceFailed."""
        host = urllib.parse.urlsplit(repo).netloc.lower()
        if host != self._host:
            yield Reached(repo)
            return
        try:
            token = self._read_token(check)
        except Failure as failure:
            raise SourceFailed("source", f"Failed to sign in to {host}: {failure.reason}") from None
        if token is None:
            raise SourceFailed(
                "source", f"Failed to sign in to {host}: the deployment has no git_token_secret any more"
            )
        with _proxy(repo, host, token) as reached:
            yield reached


@contextmanager
def _proxy(repo: str, host: str, token: str) -> Iterator[Reached]:
    signed = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    refusals: list[str] = []

    class Proxy(Handler):
        def do_GET(self):
            self._pass_on(None)

        def do_POST(self):
            length = self.headers.get("content-length", "")
            if not length.isdigit() or int(length) > _MAX_REQUEST_BYTES:
                return self.send_error(413)
            self._pass_on(self.rfile.read(int(length)))

        def _pass_on(self, body: bytes | None) -> None:
            wanted = _REQUESTS[self.command]
            if self.asked != wanted:
                return self.send_error(404)
            headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
            headers["authorization"] = f"Basic {signed}"
            try:
                # A redirect would carry the token to another address.
                with requests.request(
                    self.command,
                    repo + wanted,
                    data=body,
                    headers=headers,
                    timeout=TIMEOUT_S,
                    allow_redirects=False,
                    stream=True,
                ) as answer:
                    self._check_and_give_back(answer)
            except requests.RequestException as error:
                # The text of the error may have the request, and with it the token.
                refusals.append(f"{host} does not answer ({type(error).__name__})")
                self.close_connection = True

        def _check_and_give_back(self, answer: requests.Response) -> None:
            if answer.status_code != 200:
                refusals.append(_refusal(answer.status_code, host))
                return self.send_error(404 if answer.status_code < 500 else 502)
            self.give_back(answer, _RETURNED)

    with serving(Proxy, "git-proxy") as address:
        yield Reached(f"http://{address}", refusals)


def _refusal(status: int, host: str) -> str:
    if 300 <= status < 400:
        return f"{host} answers {status}: the repository has another address; name that one"
    return f"{host} answers {status}: there is no such repository, or the token of git_token_secret may not read it"
