"""HTTP servers of the agent on 127.0.0.1, for programs of the job user. A secret path keeps other users out."""

import http.server
import logging
import secrets
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import requests

log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 16
TIMEOUT_S = (10, 60)  # of requests that a handler passes on: to connect, and between two reads


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests below the secret path, which `serving` sets."""

    secret: str

    @property
    def asked(self) -> str | None:
        """The path of the request below the secret one; None for a request that does not know the secret."""
        own = self.secret
        if self.path != own and not self.path.startswith((f"{own}/", f"{own}?")):
            return None
        return self.path[len(own) :]

    def give_back(self, answer: requests.Response, headers: Collection[str]) -> None:
        """Sends the answer of another server on, with these of its headers."""
        self.send_response(answer.status_code)
        for name in headers:
            if value := answer.headers.get(name):
                self.send_header(name, value)
        self.end_headers()
        for piece in answer.raw.stream(_PIECE_BYTES, decode_content=False):
            self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request, client_address) -> None:
        """Reports a defect. A client that has gone, and a service that breaks off its answer, are none."""
        if not isinstance(error := sys.exc_info()[1], OSError):
            log.error("A server on loopback failed: %s", type(error).__name__)


@contextmanager
def serving(handler: type[Handler], name: str) -> Iterator[str]:
    """Serves during the block. Yields HOST:PORT/SECRET."""
    secret = f"/{secrets.token_hex(16)}"
    own = type(handler.__name__, (handler,), {"secret": secret})
    with _Server(("127.0.0.1", 0), own) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}{secret}"
        finally:
            server.shutdown()
            thread.join()
