"""A git repository over smart HTTP on 127.0.0.1, and the commits of its author."""

import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest


class GitServer:
    """repo: the address of the repository. commit(...) returns the commit."""

    def __init__(self, folder: Path):
        self.bare, self.work = folder / "repo.git", folder / "author"
        folder.mkdir()
        self._git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        self._git(folder, "init", "--quiet", "--initial-branch=main", str(self.work))
        # GitHub serves any commit that a reference leads to.
        self._git(self.bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.repo = f"http://127.0.0.1:{self._server.server_port}/repo.git"

    def commit(
        self, files: dict[str, str], reference: str = "refs/heads/main", links: dict[str, str] | None = None
    ) -> str:
        """Makes a commit without a parent, and forces the reference to it."""
        self._git(self.work, "checkout", "--quiet", "--orphan", f"o{os.urandom(4).hex()}")
        self._git(self.work, "rm", "--quiet", "-rf", "--ignore-unmatch", ".")
        for name, text in files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text(text)
        for name, target in (links or {}).items():
            (self.work / name).symlink_to(target)
        self._git(self.work, "add", "--all", "--force")
        self._git(self.work, "commit", "--quiet", "--allow-empty", "--message", "a change")
        self._git(self.work, "push", "--quiet", "--force", str(self.bare), f"HEAD:{reference}")
        return self._git(self.work, "rev-parse", "HEAD").strip()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _git(self, folder: Path, *arguments: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        done = subprocess.run(
            ["git", "-C", str(folder), *author, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout


@pytest.fixture
def server(tmp_path):
    """A git server without a commit."""
    found = GitServer(tmp_path / "server")
    yield found
    found.close()


def _handler(folder: Path):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(b"")

        def do_POST(self):
            self._answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

        def _answer(self, body: bytes):
            parts = urlsplit(self.path)
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("content-type") or "",
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding") or "",
                "GIT_PROTOCOL": self.headers.get("git-protocol") or "",
                "REMOTE_ADDR": "127.0.0.1",
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object):
            pass

    return Handler
