"""Secret Manager on loopback: the method `versions/V:access` for a VM's own access token."""

import base64
import json
import re

import google_crc32c

from local_server import Handler, LocalServer


class FakeSecrets:
    def __init__(self):
        self.versions: dict[str, bytes | int] = {}  # by full name; a number is the status of the answer
        self.requests: list[tuple[str, str]] = []  # (path, authorization)
        self.faults = lambda path: None  # a status, or bytes that replace the answer
        server = LocalServer(self._handler())
        self.url, self.close = server.url, server.close

    def answer(self, data: bytes, **changes) -> bytes:
        payload = {"data": base64.b64encode(data).decode(), "dataCrc32c": str(google_crc32c.value(data))} | changes
        return json.dumps({"name": "projects/1/secrets/s/versions/1", "payload": payload}).encode()

    def _handler(fake):
        class SecretsHandler(Handler):
            def do_GET(self):
                fake.requests.append((self.path, self.headers.get("Authorization", "")))
                match = re.fullmatch(r"/v1/(projects/[^/]+/secrets/[^/]+/versions/[^/]+):access", self.path)
                found = fake.faults(self.path) or (fake.versions.get(match[1], 404) if match else 404)
                if isinstance(found, int):
                    moved = {"Location": "http://127.0.0.1:9/elsewhere"} if found // 100 == 3 else {}
                    return self.send(
                        found, json.dumps({"error": {"code": found, "message": "a fault"}}).encode(), moved
                    )
                is_answer = found.startswith(b"{") or found.startswith(b"<")
                self.send(200, found if is_answer else fake.answer(found))

        return SecretsHandler
