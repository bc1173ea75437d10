"""A hub of models on loopback, as the real one answers: revisions, files, and large files on another host.

Large files (safetensors) redirect to a second server, as the real hub redirects to a CDN.
"""

import hashlib
import json
import re
import threading
from urllib.parse import unquote, urlsplit

from local_server import Handler, LocalServer


class FakeHub:
    def __init__(self):
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}  # by repository, commit and name
        self.branches: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, set[str]] = {}  # by private repository: the tokens that may read it
        self.tells_sizes = True
        self.is_gated = False  # private repositories show that they exist
        # (server, method, path, headers in lower case with the query)
        self.requests: list[tuple[str, str, str, dict[str, str]]] = []
        # Called with (server, method, path); a result replaces the answer: a status, ("cut", bytes) to end the
        # connection after so many bytes, ("slow", seconds) between pieces, ("trickle", seconds) between bytes of a
        # body without an end, ("trickled head", seconds) between bytes of a head without an end, ("silent", 0) for no
        # answer, ("flip", 0) to change one byte, ("limited", seconds) to ask for a wait, ("body", bytes).
        self.faults = lambda server, method, path: None
        self.sent = 0  # bytes of large files
        self._closing = threading.Event()
        self._servers = {name: LocalServer(self._handler(name)) for name in ("hub", "cdn")}

    def url(self, name="hub"):
        return self._servers[name].url

    def close(self):
        self._closing.set()
        for server in self._servers.values():
            server.close()

    def put(self, repo: str, files: dict[str, bytes], branch="main") -> str:
        """A new commit at the branch's head."""
        commit = hashlib.sha1(repr((repo, sorted(files.items()))).encode()).hexdigest()
        self.commits.setdefault(repo, {})[commit] = files
        self.branches.setdefault(repo, {})[branch] = commit
        return commit

    def asked(self, server="hub", method=None):
        return [path for name, verb, path, _ in self.requests if name == server and verb == (method or verb)]

    def _answer(self, server, method, path, headers):
        """(status, headers, body)"""
        if server == "cdn":
            return self._file_of_cdn(path, headers)
        if match := re.fullmatch(r"/api/models/([^/]+(?:/[^/]+)??)(?:/revision/([^/]+))?", path):
            repo, revision = match[1], unquote(match[2] or "main")
        elif match := re.fullmatch(r"/([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path):
            repo, revision = match[1], unquote(match[2])
        else:
            return 404, {}, b"no such page"
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if repo not in self.commits or (repo in self.tokens and token not in self.tokens[repo]):
            if repo in self.commits and self.is_gated:
                return (403 if token else 401), {"X-Error-Code": "GatedRepo"}, b'{"error": "Access is restricted"}'
            code = {"X-Error-Code": "RepoNotFound", "X-Error-Message": f"Repository not found for {token}"}
            return (404 if token else 401), code, b'{"error": "Repository not found"}'
        commit = self.branches[repo].get(revision, revision)
        files = self.commits[repo].get(commit)
        if files is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "Invalid rev id"}'
        if path.startswith("/api/"):
            tells_sizes = self.tells_sizes and headers[":query"] == "blobs=true"
            siblings = [
                {"rfilename": name} | ({"size": len(data)} if tells_sizes else {}) for name, data in files.items()
            ]
            body = {"id": repo, "sha": commit, "siblings": siblings, "private": False, "downloads": 0, "tags": []}
            return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()
        name = unquote(match[3])
        if name not in files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
        data = files[name]
        common = {"X-Repo-Commit": commit}
        if name.endswith(".safetensors"):
            linked = {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
            where = f"{self.url('cdn')}/{repo}/{commit}/{name}?signature=of-the-cdn"
            return 302, common | linked | {"ETag": '"of-the-pointer"', "Location": where}, b"Found"
        return 200, common | {"ETag": f'"{hashlib.sha1(data).hexdigest()}"'}, data

    def _file_of_cdn(self, path, headers):
        repo, commit, name = re.fullmatch(r"/(.+)/([0-9a-f]{40})/(.+)", path).groups()
        data = self.commits[repo][commit][name]
        if match := re.fullmatch(r"bytes=(\d+)-", headers.get("range", "")):
            begin = int(match[1])
            if begin >= len(data):
                return 416, {}, b""
            return 206, {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}, data[begin:]
        return 200, {}, data

    def _handler(hub, server):
        class HubHandler(Handler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                _, _, path, query, _ = urlsplit(self.path)
                headers = {key.lower(): value for key, value in self.headers.items()} | {":query": query}
                hub.requests.append((server, self.command, unquote(path), headers))
                fault = hub.faults(server, self.command, path)
                if isinstance(fault, int):
                    return self.send(fault, b"a fault of the test")
                kind, value = fault or ("", 0)
                if kind == "limited":
                    return self.send(429, b"a fault of the test", {"Retry-After": str(value)})
                if kind == "body":
                    return self.send(200, value, {"Content-Type": "text/html"})
                status, answer, body = hub._answer(server, self.command, path, headers)
                if kind == "flip":
                    body = body[:-1] + bytes([body[-1] ^ 1])
                self.send_slowly(status, answer, body, kind, value)

            def send_slowly(self, status, headers, body, kind, value):
                if kind == "silent":
                    hub._closing.wait()
                if kind == "trickled head":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
                    while not hub._closing.wait(value):
                        self.wfile.write(b"x")
                self.send_response(status)
                for key, text in headers.items():
                    self.send_header(key, text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                body = body[:value] if kind == "cut" else body
                step = 1 if kind == "trickle" else 4096
                for begin in range(0, len(body), step):
                    self.wfile.write(body[begin : begin + step])
                    hub.sent += len(body[begin : begin + step]) if server == "cdn" else 0
                    if kind in ("slow", "trickle"):
                        hub._closing.wait(value)
                    if kind == "trickle" and begin + 2 == len(body):
                        hub._closing.wait()
                if kind == "cut":
                    self.close_connection = True

        return HubHandler
