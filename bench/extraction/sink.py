"""A bucket on the loopback that receives at memory speed: `python -m extraction.sink [CERTIFICATE KEY]` prints its URL.

The sink has the part of Cloud Storage's JSON API that an upload needs, in a process of its own. Large objects are
counted and dropped, so that no disk and no second checksum is measured; small objects can be read again.
"""

import itertools
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from gleaner_worker.storage.objects import Bucket, make_client

BUCKET = "sink"
_KEPT_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


@contextmanager
def running_sink(with_tls: bool = False):
    """Yields a Bucket that uploads to a sink; with TLS, by a certificate that this process alone trusts."""
    with tempfile.TemporaryDirectory(prefix="gleaner-sink-") as folder:
        files = [os.path.join(folder, name) for name in ("certificate.pem", "key.pem")] if with_tls else []
        if files:
            _make_certificate(*files)
            os.environ["REQUESTS_CA_BUNDLE"] = files[0]
        child = subprocess.Popen([sys.executable, "-m", "extraction.sink", *files], stdout=subprocess.PIPE, text=True)
        try:
            os.environ["STORAGE_EMULATOR_HOST"] = child.stdout.readline().strip()
            yield Bucket(make_client("local"), BUCKET)
        finally:
            child.kill()
            child.wait()


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

    def setup(self):
        super().setup()
        self.rfile = self.connection.makefile("rb", buffering=_PIECE_BYTES)

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urlsplit(self.path)
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
        self.uploads[token] = json.loads(self.rfile.read(size)) | {"kept": b""}
        host = self.headers["Host"]
        self._answer(
            200,
            {},
            {"Location": f"{self.scheme}://{host}/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&token={token}"},
        )

    def do_PUT(self):
        token = parse_qs(urlsplit(self.path).query)["token"][0]
        upload = self.uploads[token]
        end, total = re.fullmatch(r"bytes \d+-(\d+)/(\d+|\*)", self.headers["Content-Range"]).groups()
        left = int(self.headers["Content-Length"])
        is_kept = total != "*" and int(total) <= _KEPT_BYTES
        if is_kept:
            upload["kept"] += self.rfile.read(left)
        else:
            buffer = memoryview(bytearray(_PIECE_BYTES))
            while left and (count := self.rfile.readinto(buffer[: min(left, _PIECE_BYTES)])):
                left -= count
        if total == "*" or int(end) + 1 < int(total):
            return self._answer(308, b"", {"Range": f"bytes=0-{end}"})
        data = upload.pop("kept")
        return self._store(self.uploads.pop(token), int(total), data if is_kept else None)

    def _store(self, resource: dict, size: int, data: bytes | None):
        resource |= {"bucket": BUCKET, "generation": str(next(self.numbers)), "size": str(size)}
        self.objects[resource["name"]] = (resource, data)
        self._answer(200, resource)

    def _answer(self, status: int, answer: dict | bytes | memoryview, headers: dict[str, str] | None = None):
        data = json.dumps(answer).encode() if isinstance(answer, dict) else answer
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    if files := sys.argv[1:]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        _Handler.scheme = "https"
    print(f"{_Handler.scheme}://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
