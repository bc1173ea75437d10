"""The part of Cloud Storage's JSON API that the worker uses, in memory, for the real client.

Preconditions, generations and checksums work as in the service; `faults` makes requests fail.
"""

import base64
import copy
import json
import re
import threading
import uuid
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c
import pytest

from local_server import Handler, LocalServer


@contextmanager
def serving():
    """A service that every storage client of this process and its subprocesses uses. This process retries fast."""
    fake = FakeStorage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        patch.setattr("gleaner_worker.storage.retry.FIRST_WAIT_S", 0.01)
        yield fake
    fake.close()


class FakeStorage:
    def __init__(self):
        self.objects: dict[tuple[str, str], dict] = {}
        self.uploads: dict[str, dict] = {}
        self.requests: list[str] = []
        self.sent_bytes = 0  # of all answers
        self.ranges: list[tuple[int, int]] = []  # first and last byte of each answer to a request with a range
        # Called with "METHOD path?query" before each request. A status is the answer; ("after", status) is the answer
        # although the request succeeds; "half" breaks off the right answer.
        self.faults = lambda request: None
        # Called with the headers of each request. A status is the answer.
        self.refuses = lambda headers: None
        # Called with the name of an object before it is created; it may wait, as on a slow network.
        self.before_create = lambda name: None
        self.lock = threading.RLock()
        self._generation = 1_000
        server = LocalServer(self._handler())
        self.url, self.close = server.url, server.close

    def put(self, bucket: str, name: str, data: bytes, metadata: dict | None = None) -> dict:
        with self.lock:
            self._generation += 1
            crc = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
            resource = {
                "name": name,
                "bucket": bucket,
                "generation": str(self._generation),
                "size": str(len(data)),
                "crc32c": crc,
            }
            resource |= {"metadata": metadata or {}, "metageneration": "1"}
            self.objects[bucket, name] = {"resource": resource, "data": data}
            return resource

    def load(self, other: "FakeStorage"):
        """Replaces all objects by copies of the other's objects, of the same generations."""
        with self.lock:
            self.objects, self._generation = copy.deepcopy(other.objects), other._generation

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        with self.lock:
            return sorted(name for b, name in self.objects if b == bucket and name.startswith(prefix))

    def data(self, bucket: str, name: str) -> bytes:
        return self.objects[bucket, name]["data"]

    def metadata(self, bucket: str, name: str) -> dict:
        return self.objects[bucket, name]["resource"]["metadata"]

    def delete(self, bucket: str, name: str):
        with self.lock:
            del self.objects[bucket, name]

    def clear(self, *prefixes: str):
        """Forgets every object with one of these prefixes."""
        with self.lock:
            self.objects = {key: kept for key, kept in self.objects.items() if not key[1].startswith(prefixes)}

    def _handler(fake):
        class StorageHandler(Handler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.serve(b"")

            def do_POST(self):
                self.serve(self.read_body())

            do_PUT = do_POST

            def serve(self, body):
                url = urlsplit(self.path)
                query = {key: values[-1] for key, values in parse_qs(url.query).items()}
                request = f"{self.command} {unquote(self.path)}"
                fake.requests.append(request)
                fault = fake.refuses(self.headers) or fake.faults(request)
                if isinstance(fault, int):
                    return self.answer(fault, {"error": {"code": fault, "message": "a fault of the test"}})
                if self.command == "POST" and (name := fake.name_of(query, body)):
                    fake.before_create(name)
                with fake.lock:
                    status, answer, headers = fake.route(self.command, url.path, query, self.headers, body)
                if fault == "half":
                    return self.answer(status, answer, headers, half=True)
                if fault:
                    return self.answer(
                        fault[1], {"error": {"code": fault[1], "message": "a fault of the test, after the fact"}}
                    )
                self.answer(status, answer, headers)

            def answer(self, status, answer, headers=None, half=False):
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                fake.sent_bytes += len(data)
                self.send_response(status)
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Keep-Alive", "timeout=5")
                try:
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2] if half else data)
                    self.close_connection |= half
                except ConnectionError:
                    self.close_connection = True  # the client was killed

        return StorageHandler

    @staticmethod
    def name_of(query, body):
        """The name of the object that a request uploads; None for any other request."""
        start = {"multipart": body.find(b"{"), "resumable": 0}.get(query.get("uploadType"))
        if start is None:
            return None
        return json.JSONDecoder().raw_decode(body[start : start + 16384].decode("latin-1"))[0]["name"]

    def route(self, method, path, query, headers, body):
        if match := re.fullmatch(r"/upload(?:/resumable)?/storage/v1/b/([^/]+)/o", path):
            return self._upload(match[1], method, query, headers, body)
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)/o", path):
            found = [
                o["resource"]
                for (b, n), o in sorted(self.objects.items())
                if b == match[1] and n.startswith(query.get("prefix", ""))
            ]
            return 200, {"kind": "storage#objects", "items": found}, {}
        if match := re.fullmatch(r"(?:/download)?/storage/v1/b/([^/]+)/o/(.+)", path):
            found = self.objects.get((match[1], unquote(match[2])))
            if not found or query.get("generation", found["resource"]["generation"]) != found["resource"]["generation"]:
                return 404, {"error": {"code": 404, "message": "No such object"}}, {}
            if query.get("alt") == "media":
                return self._media(found, headers)
            return 200, found["resource"], {}
        return 404, {"error": {"code": 404, "message": f"not in this fake: {method} {path}"}}, {}

    def _media(self, found, headers):
        data, resource = found["data"], found["resource"]
        stated = {"X-Goog-Hash": f"crc32c={resource['crc32c']}", "X-Goog-Generation": resource["generation"]}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range") or "")
        if not asked:
            return 200, data, stated
        begin, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if begin > end:
            return 416, {"error": {"code": 416, "message": "The requested range cannot be satisfied."}}, {}
        self.ranges.append((begin, end))
        return 206, data[begin : end + 1], stated | {"Content-Range": f"bytes {begin}-{end}/{len(data)}"}

    def _upload(self, bucket, method, query, headers, body):
        if query["uploadType"] == "media":
            return self._finish(bucket, {"name": query["name"]}, body, query)
        if query["uploadType"] == "multipart":
            boundary = re.search(r'boundary="?([^";]+)', headers["Content-Type"])[1].encode()
            _, first, second, _ = body.split(b"--" + boundary)
            resource = json.loads(first.split(b"\r\n\r\n", 1)[1])
            return self._finish(bucket, resource, second.split(b"\r\n\r\n", 1)[1][:-2], query)
        if method == "POST":
            token, host = uuid.uuid4().hex, headers["X-Forwarded-Host"] or headers["Host"]
            self.uploads[token] = {"resource": json.loads(body), "data": b"", "query": query}
            return (
                200,
                {},
                {"Location": f"http://{host}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={token}"},
            )
        upload = self.uploads[query["upload_id"]]
        upload["data"] += body
        total = headers["Content-Range"].rpartition("/")[2]
        if total == "*" or int(total) > len(upload["data"]):
            return 308, {}, {"Range": f"bytes=0-{len(upload['data']) - 1}"}
        return self._finish(bucket, upload["resource"], upload["data"], upload["query"])

    def _finish(self, bucket, resource, data, query):
        existing = self.objects.get((bucket, resource["name"]))
        if "ifGenerationMatch" in query and query["ifGenerationMatch"] != (
            existing["resource"]["generation"] if existing else "0"
        ):
            return 412, {"error": {"code": 412, "message": "conditionNotMet"}}, {}
        crc = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
        if resource.get("crc32c", crc) != crc:
            return 400, {"error": {"code": 400, "message": "Provided CRC32C does not match"}}, {}
        stored = self.put(bucket, resource["name"], data, resource.get("metadata"))
        stored |= {key: resource[key] for key in ("customTime",) if key in resource}
        return 200, stored, {}
