"""A bucket on the loopback that receives at memory speed: `python -m extraction.sink` prints its URL.

The sink has the part of Cloud Storage's JSON API that an upload needs, in processes of its own. Large objects are
counted and dropped, so that no disk and no second checksum is measured; streams and small objects can be read again.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

from gleaner_worker.storage.objects import Bucket, make_client

BUCKET = "sink"
_KEPT_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Network:
    """The network between a worker and the sink. receivers: processes that receive large objects, beside the first.
    latency_s: before each answer. bytes_per_s: the most that a connection carries; 0 without a limit.
    answers_bytes_per_s: the most that all answers carry together; 0 without a limit."""

    receivers: int = 0
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    answers_bytes_per_s: float = 0.0


@contextmanager
def running_sink(with_tls: bool = False, network: Network = Network()) -> Iterator[Bucket]:  # noqa: B008 - immutable
    """Yields a Bucket that uploads to a sink; with TLS, by a certificate that this process alone trusts."""
    with tempfile.TemporaryDirectory(prefix="gleaner-sink-") as folder:
        files = [os.path.join(folder, name) for name in ("certificate.pem", "key.pem")] if with_tls else []
        if files:
            _make_certificate(*files)
            os.environ["REQUESTS_CA_BUNDLE"] = files[0]
        command = [sys.executable, "-m", "extraction.sink", *files]
        command += [
            f"--receivers={network.receivers}",
            f"--latency={network.latency_s}",
            f"--rate={network.bytes_per_s}",
            f"--answers-rate={network.answers_bytes_per_s}",
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            os.environ["STORAGE_EMULATOR_HOST"] = child.stdout.readline().strip()
            yield Bucket(make_client("local"), BUCKET)
        finally:
            child.terminate()
            child.wait()


def most_streams(bucket: Bucket) -> int:
    """The most uploads of large objects that the sink received at once since the last call."""
    return bucket.client._http.get(f"{bucket.client.api_endpoint}/streams").json()["most"]


def _make_certificate(certificate: str, key: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    rbufsize = 0  # reads go straight into the buffer below
    objects: dict[str, tuple[dict, bytes | None]] = {}
    uploads: dict[str, dict] = {}
    numbers = itertools.count(1)
    scheme = "http"
    network = Network()
    answering, free_at = threading.Lock(), [0.0]  # when the network has carried all answers
    ports = itertools.repeat(0)  # of the receivers of large objects, in turns; 0 for this process
    streams = multiprocessing.Array("i", 2)  # uploads of large objects at this moment, and the most of them

    def setup(self):
        super().setup()
        self.rfile = self.connection.makefile("rb", buffering=_PIECE_BYTES)

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/streams":
            with self.streams:
                most, self.streams[1] = self.streams[1], self.streams[0]
            return self._answer(200, {"most": most})
        if match := re.fullmatch(r"(?:/download)?/storage/v1/b/[^/]+/o/(.+)", url.path):
            resource, data = self.objects.get(unquote(match[1]), (None, None))
            if resource is None:
                return self._answer(404, {"error": {"code": 404, "message": "No such object"}})
            if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or ""):
                return self._answer(206, memoryview(data or b"")[int(asked[1]) : int(asked[2]) + 1])
            if "media" in url.query:
                return self._answer(200, data or b"", {"X-Goog-Hash": f"crc32c={resource['crc32c']}"})
            return self._answer(200, resource)
        prefix = parse_qs(url.query).get("prefix", [""])[0]
        found = [resource for name, (resource, _) in sorted(self.objects.items()) if name.startswith(prefix)]
        return self._answer(200, {"kind": "storage#objects", "items": found})

    def do_POST(self):
        query = {key: values[-1] for key, values in parse_qs(urlsplit(self.path).query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        if query["uploadType"] == "multipart":
            body = self.rfile.read(size)
            boundary = re.search(r'boundary="?([^";]+)', self.headers["Content-Type"])[1].encode()
            _, first, second, _ = body.split(b"--" + boundary)
            data = second.split(b"\r\n\r\n", 1)[1][:-2]
            return self._store(json.loads(first.split(b"\r\n\r\n", 1)[1]), len(data), data)
        token = str(next(self.numbers))
        resource = json.loads(self.rfile.read(size))
        self.uploads[token] = resource | {"kept": b""}
        size = int(self.headers.get("X-Upload-Content-Length") or 0)
        port = 0 if _is_kept(resource["name"], size) else next(self.ports)
        host = f"127.0.0.1:{port}" if port else self.headers["Host"]
        # A receiver knows an upload by its URL alone.
        of_receiver = f"&name={quote(resource['name'], safe='')}" if port else ""
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&token={token}{of_receiver}"
        return self._answer(200, {}, {"Location": f"{self.scheme}://{host}{path}"})

    def do_PUT(self):
        query = parse_qs(urlsplit(self.path).query)
        token = query["token"][0]
        upload = self.uploads.setdefault(token, {"name": query.get("name", [""])[0], "kept": b""})
        end, total = re.fullmatch(r"bytes \d+-(\d+)/(\d+|\*)", self.headers["Content-Range"]).groups()
        left = int(self.headers["Content-Length"])
        is_kept = total != "*" and _is_kept(upload["name"], int(total))
        if is_kept:
            upload["kept"] += self.rfile.read(left)
        else:
            self._drop(left)
        if total == "*" or int(end) + 1 < int(total):
            return self._answer(308, b"", {"Range": f"bytes=0-{end}"})
        data = upload.pop("kept")
        return self._store(self.uploads.pop(token), int(total), data if is_kept else None)

    def _drop(self, left: int):
        """Receives a part of a large object, at most at the rate of the network."""
        with self.streams:
            self.streams[0] += 1
            self.streams[1] = max(self.streams)
        buffer, began, received = memoryview(bytearray(_PIECE_BYTES)), time.monotonic(), 0
        while left and (count := self.rfile.readinto(buffer[: min(left, _PIECE_BYTES)])):
            left, received = left - count, received + count
            if self.network.bytes_per_s:
                time.sleep(max(0.0, began + received / self.network.bytes_per_s - time.monotonic()))
        with self.streams:
            self.streams[0] -= 1

    def _store(self, resource: dict, size: int, data: bytes | None):
        resource |= {"bucket": BUCKET, "generation": str(next(self.numbers)), "size": str(size)}
        self.objects[resource["name"]] = (resource, data)
        self._answer(200, resource)

    def _answer(self, status: int, answer: dict | bytes | memoryview, headers: dict[str, str] | None = None):
        data = json.dumps(answer).encode() if isinstance(answer, dict) else answer
        time.sleep(self.network.latency_s)
        if rate := self.network.answers_bytes_per_s:
            with self.answering:
                self.free_at[0] = max(self.free_at[0], time.monotonic()) + len(data) / rate
                due = self.free_at[0]
            time.sleep(max(0.0, due - time.monotonic()))
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_GET


def _is_kept(name: str, size: int) -> bool:
    """Whether the first process keeps the object, as it keeps streams of any size."""
    return size <= _KEPT_BYTES or name.startswith("datasets/")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m extraction.sink")
    parser.add_argument("files", nargs="*", help="a certificate and its key, for TLS")
    parser.add_argument("--receivers", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--answers-rate", type=float, default=0.0)
    args = parser.parse_args()
    _Handler.network = Network(args.receivers, args.latency, args.rate, args.answers_rate)
    context = None
    if args.files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*args.files)
        _Handler.scheme = "https"
    servers = [_server(context) for _ in range(1 + args.receivers)]
    first, *receivers = servers
    fork = multiprocessing.get_context("fork")
    for server in receivers:
        fork.Process(target=server.serve_forever, daemon=True).start()
    if receivers:
        _Handler.ports = itertools.cycle([server.server_address[1] for server in receivers])
    print(f"{_Handler.scheme}://127.0.0.1:{first.server_address[1]}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # ends the receivers too
    first.serve_forever()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has read enough ends its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _server(context: ssl.SSLContext | None) -> ThreadingHTTPServer:
    server = _Server(("127.0.0.1", 0), _Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


if __name__ == "__main__":
    main()
