"""A git repository over smart HTTP on 127.0.0.1, and the commits of its author."""

import base64
import hashlib
import os
import subprocess
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local_server import Handler, LocalServer

# (mode, name, content of a file or a link, or a folder or its hash)
Tree = list[tuple[bytes, bytes, "bytes | str | Tree"]]


class GitServer:
    """repo: the address of the repository. commit(...) returns the commit.

    password: what a request needs, as at a private repository. seen: the authorization of each request. moved: True
    for an address that only redirects.
    """

    def __init__(self, folder: Path):
        self._bare, self._commits = folder / "repo.git", 0
        self.password: str | None = None
        self.seen: list[str] = []
        self.moved = False
        folder.mkdir()
        self._git("init", "--quiet", "--bare", "--initial-branch=main")
        # GitHub serves any commit that a reference leads to.
        self._git("config", "uploadpack.allowReachableSHA1InWant", "true")
        server = LocalServer(_handler(folder, self))
        self.repo, self.close = f"{server.url}/repo.git", server.close

    def commit(
        self, files: dict[str, str], reference: str = "refs/heads/main", links: dict[str, str] | None = None
    ) -> str:
        """Makes a commit without a parent, and forces the reference to it."""
        self._commits += 1
        commands = [f"commit {reference}\ncommitter a <a@example.com> {self._commits} +0000\ndata 8\na change\n"]
        for mode, entries in (("100644", files), ("120000", links or {})):
            for path, text in entries.items():
                commands.append(f"M {mode} inline {path}\ndata {len(text.encode())}\n{text}\n")
        self._git("fast-import", "--quiet", "--force", stdin="".join(commands))
        return self._git("rev-parse", reference).strip()

    def commit_tree(self, tree: "Tree", reference: str = "refs/heads/main") -> None:
        """Makes a commit of a tree that git itself refuses to make."""
        commit = b"tree %s\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\na" % self.tree(tree).encode()
        path = self._bare / reference
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._object(b"commit", commit) + "\n")

    def tree(self, tree: "Tree") -> str:
        """Stores the tree, and returns its hash."""
        entries = b""
        for mode, name, content in tree:
            if isinstance(content, bytes):
                digest = "1" * 40 if mode == b"160000" else self._object(b"blob", content)
            else:
                digest = content if isinstance(content, str) else self.tree(content)
            entries += mode + b" " + name + b"\0" + bytes.fromhex(digest)
        return self._object(b"tree", entries)

    def _object(self, kind: bytes, content: bytes) -> str:
        data = b"%s %d\0%s" % (kind, len(content), content)
        digest = hashlib.sha1(data).hexdigest()
        path = self._bare / "objects" / digest[:2] / digest[2:]
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_bytes(zlib.compress(data))
        return digest

    def _git(self, *arguments: str, stdin: str = "") -> str:
        command = ["git", f"--git-dir={self._bare}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=stdin).stdout


@pytest.fixture
def server(tmp_path):
    """A git server without a commit."""
    found = GitServer(tmp_path / "server")
    yield found
    found.close()


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"x-access-token:{password}".encode()).decode()


def _handler(folder: Path, server: GitServer):
    class GitHandler(Handler):
        def do_GET(self):
            body = self.read_body()
            given = self.headers.get("authorization") or ""
            server.seen.append(given)
            if server.moved and not self.path.startswith("/moved/"):
                return self.send(301, b"", {"Location": f"/moved{self.path}"})
            if server.password is not None and given != _basic(server.password):
                # GitHub hides a private repository.
                return self.send(404 if given else 401, b"", {"WWW-Authenticate": 'Basic realm="git"'})
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
            self.send(int(headers.pop("Status", "200").split()[0]), content, headers)

        do_POST = do_GET

    return GitHandler
