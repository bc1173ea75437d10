"""A git repository over smart HTTP on 127.0.0.1, and the commits of its author."""

import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local_server import Handler, LocalServer


class GitServer:
    """repo: the address of the repository. commit(...) returns the commit."""

    def __init__(self, folder: Path):
        self.bare, self.work = folder / "repo.git", folder / "author"
        folder.mkdir()
        self._git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        self._git(folder, "init", "--quiet", "--initial-branch=main", str(self.work))
        # GitHub serves any commit that a reference leads to.
        self._git(self.bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
        server = LocalServer(_handler(folder))
        self.repo, self.close = f"{server.url}/repo.git", server.close

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
    class GitHandler(Handler):
        def do_GET(self):
            body = self.read_body()
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
