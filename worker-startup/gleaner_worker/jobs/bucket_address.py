"""The bucket, for the process of a job with ordinary clients: a metadata server of the attempt's own.

Its tokens reach the job's own folder and inputs alone. On the local cloud it also passes requests on to the storage
there, because some clients send no token to a storage that is not Google's.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import google.auth.exceptions
import requests

from ..failures import Failure, LeaseLost
from ..loopback import TIMEOUT_S, Handler, serving
from ..storage.lease_credentials import LeaseCredentials

# Clients renew a token up to four minutes before its end, so they get none with less time.
_LEAST_S = 300.0
_FLAVOR = {"Metadata-Flavor": "Google"}
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
# Clients want a name. There is no such account, and google-auth would look up one of the form of Google's accounts.
_ACCOUNT = "gleaner-job@{project}"
_V1 = "/computeMetadata/v1/"
_ACCOUNTS = "instance/service-accounts/"
_STORAGE = ("/storage/", "/upload/", "/download/", "/batch/", "/resumable/upload/", "/b/")
# Headers of one connection alone. With them a client would use a connection again that is closed.
_OF_CONNECTION = ("connection", "keep-alive", "transfer-encoding")
_LEFT_OUT = ("host", "authorization", "x-forwarded-host", *_OF_CONNECTION)


@dataclass(frozen=True)
class BucketAccess:
    """credentials: of the job's own objects. storage: address of the storage of a local cloud."""

    credentials: LeaseCredentials
    project: str
    storage: str | None = None

    @contextmanager
    def serve(self, check: Callable[[], None]) -> Iterator[dict[str, str]]:
        """Yields the variables of the process. check: raises once the attempt may use the bucket no more."""
        with serving(_handler(self, check), "bucket-address") as address:
            variables = dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"), address)
            variables |= {"GCE_METADATA_TIMEOUT": "10", "GOOGLE_CLOUD_PROJECT": self.project}
            variables["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # else it asks what the token may not see
            if self.storage:
                clients = ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL")
                variables |= dict.fromkeys(clients, f"http://{address}")
            yield variables


@contextmanager
def reaching_bucket(access: BucketAccess | None, order: Mapping, check: Callable[[], None]) -> Iterator[dict[str, str]]:
    """Yields the variables that lead the process to its objects in the bucket. access: None without a network."""
    inputs = order.get("inputs") or []
    named = {"JOB_INPUTS": json.dumps(inputs)} | {f"JOB_INPUT_{n}": address for n, address in enumerate(inputs)}
    if access is None or "own_url" not in order:
        yield {"JOB_CHECKPOINT_URL": "", **named}
        return
    with access.serve(check) as variables:
        yield {**variables, "JOB_CHECKPOINT_URL": order["own_url"], **named}


class _Body:
    """The body of a request, read from the client as the storage takes it."""

    def __init__(self, file: io.BufferedIOBase, size: int):
        self._file, self._left = file, size

    def __len__(self) -> int:
        return self._left

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece


def _handler(access: BucketAccess, check: Callable[[], None]) -> type[Handler]:
    email = _ACCOUNT.format(project=access.project)
    account = {"aliases": ["default"], "email": email, "scopes": [_SCOPE]}
    own = f"{_ACCOUNTS}default/"
    texts = {
        "project/project-id": access.project,
        _ACCOUNTS: f"default/\n{email}/\n",
        f"{own}email": email,
        f"{own}scopes": f"{_SCOPE}\n",
    }

    class BucketHandler(Handler):
        def do_GET(self) -> None:
            self._answer()

        do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

        def _answer(self) -> None:
            asked = self.asked
            if asked is None:
                return self.send_error(404)
            try:
                check()
                if access.storage and asked.startswith(_STORAGE):
                    return self._pass_on(access.storage, asked)
                if self.command != "GET":
                    return self.send_error(405)
                return self._tell(urlsplit(asked))
            except (LeaseLost, Failure):
                return self.send_error(403, "The attempt has ended")
            except (OSError, google.auth.exceptions.TransportError):
                return self.send_error(503)

        def _tell(self, asked) -> None:
            """Metadata as the client knows it from a VM: no identity token and no attribute."""
            if asked.path in ("", "/"):
                return self._send("computeMetadata/\n")
            if self.headers["Metadata-Flavor"] != "Google" or self.headers["X-Forwarded-For"]:
                return self.send_error(403, "Missing Metadata-Flavor:Google header")
            path = asked.path.removeprefix(_V1).replace(f"{_ACCOUNTS}{email}", f"{_ACCOUNTS}default", 1)
            if path == f"{own}token":
                token, left_s = access.credentials.lasting(_LEAST_S)
                return self._send({"access_token": token, "expires_in": int(left_s), "token_type": "Bearer"})
            if path in (own, own.rstrip("/")) and parse_qs(asked.query).get("recursive") == ["true"]:
                return self._send(account)
            return self._send(texts[path]) if path in texts else self.send_error(404)

        def _send(self, answer: str | dict) -> None:
            text, kind = (answer, "text") if isinstance(answer, str) else (json.dumps(answer), "json")
            body = text.encode()
            headers = _FLAVOR | {"Content-Type": f"application/{kind}", "Content-Length": str(len(body))}
            self.send_response(200)
            for header, value in headers.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(body)

        def _pass_on(self, storage: str, asked: str) -> None:
            token, _ = access.credentials.lasting(_LEAST_S)
            own = {name: value for name, value in self.headers.items() if name.lower() not in _LEFT_OUT}
            # The storage writes this address into the links of its answers.
            own |= {"Authorization": f"Bearer {token}", "X-Forwarded-Host": f"{self.headers['Host']}{self.secret}"}
            length = int(self.headers.get("Content-Length") or 0)
            body = _Body(self.rfile, length) if length else b""
            with requests.Session() as session:
                session.trust_env = False  # the storage belongs to this machine, so requests never use a proxy
                session.headers.clear()
                with session.request(
                    self.command,
                    storage + asked,
                    data=body,
                    headers=own,
                    timeout=TIMEOUT_S,
                    allow_redirects=False,
                    stream=True,
                ) as answer:
                    self.give_back(answer, [name for name in answer.headers if name.lower() not in _OF_CONNECTION])

    return BucketHandler
