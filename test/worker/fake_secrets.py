"""Secret Manager on loopback: the method `versions/V:access` for a VM's own access token."""

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import google_crc32c


class FakeSecrets:
    def __init__(self):
        self.versions: dict[str, bytes | int] = {}  # by full name; a number is the status of the answer
        self.requests: list[tuple[str, str]] = []  # (path, authorization)
        self.faults = lambda path: None  # a status, or bytes that replace the answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, data: bytes, **changes) -> bytes:
        payload = {"data": base64.b64encode(data).decode(), "dataCrc32c": str(google_crc32c.value(data))} | changes
        return json.dumps({"name": "projects/1/secrets/s/versions/1", "payload": payload}).encode()

    def _handler(fake):
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                fake.requests.append((self.path, self.headers.get("Authorization", "")))
                match = re.fullmatch(r"/v1/(projects/[^/]+/secrets/[^/]+/versions/[^/]+):access", self.path)
                found = fake.faults(self.path) or (fake.versions.get(match[1], 404) if match else 404)
                if isinstance(found, int):
                    return self.send(found, json.dumps({"error": {"code": found, "message": "a fault"}}).encode())
                is_answer = found.startswith(b"{") or found.startswith(b"<")
                self.send(200, found if is_answer else fake.answer(found))

            def send(self, status, data):
                self.send_response(status)
                if status // 100 == 3:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler
