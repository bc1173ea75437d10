"""A private repository: the agent signs in with the token of a secret, and no process of the job user has the token."""

import json
import os
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.source.commands import Commands
from gleaner_worker.source.git import check_out
from gleaner_worker.source.private import Repositories, is_host
from hub_secret import TOKEN
from job_attempts import a_host, needs_root

pytestmark = [needs_root, pytest.mark.slow]


class Watched(Commands):
    """Keeps all that a program of the job user was given, and calls `during` beside it."""

    def __init__(self, user, during=lambda argv: None):
        super().__init__(user, threading.Event())
        self.given, self._during = [], during

    def run(self, argv, folder, limit_s, environment=None, *rest, **more):
        self.given += [list(argv), dict(environment or {})]
        self._during(argv)
        return super().run(argv, folder, limit_s, environment, *rest, **more)


@pytest.fixture
def fetch(tmp_path, server, secrets):
    """fetch(host, during) checks `main` out. It returns the text of main.py and the commands."""
    user = find_job_user(a_host(tmp_path / "home"))
    server.commit({"main.py": "private"})
    server.password = TOKEN

    def get(host=None, during=lambda argv: None):
        jobs = str(tmp_path / "home" / "jobs")
        os.makedirs(jobs, exist_ok=True)
        repositories = Repositories(host or urlsplit(server.repo).netloc, secrets.read)
        commands = Watched(user, during)
        folder, _ = check_out({"repo": server.repo, "branch": "main"}, jobs, commands, repositories)
        with open(os.path.join(folder, "main.py"), encoding="utf-8") as file:
            return file.read(), commands

    return get


def test_a_private_repository_is_fetched_and_git_never_has_the_token(fetch, server, tmp_path, caplog):
    text, commands = fetch()
    assert text == "private"
    assert len(server.seen) >= 2 and all(server.seen)
    assert TOKEN not in json.dumps(commands.given) + caplog.text
    for folder, _, files in os.walk(tmp_path / "home"):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                assert TOKEN.encode() not in file.read()


def test_another_host_gets_no_token(fetch, server, secrets):
    with pytest.raises(SourceFailed, match="Failed to fetch refs/heads/main of http"):
        fetch(host="other.example")
    assert set(server.seen) == {""} and not secrets.asked


def test_a_redirect_gets_no_token(fetch, server):
    server.moved = True
    with pytest.raises(SourceFailed, match="answers 301: the repository has another address; name that one"):
        fetch()
    assert len(server.seen) == 1


def test_a_token_that_may_not_read_the_repository_names_its_setting(fetch, server):
    server.password = "another"
    with pytest.raises(SourceFailed, match="answers 404.* the token of git_token_secret may not read it") as failed:
        fetch()
    assert TOKEN not in failed.value.reason and "127.0.0.1" in failed.value.reason


def test_a_token_that_worker_api_cannot_read_fails_with_its_reason(fetch, server, secrets):
    secrets.problem = "there is no such secret"
    with pytest.raises(SourceFailed, match="Failed to sign in to .*: there is no such secret"):
        fetch()
    secrets.problem = secrets.token = None
    with pytest.raises(SourceFailed, match="the deployment has no git_token_secret any more"):
        fetch()
    assert secrets.asked == 2 and server.seen == []


def test_a_job_beside_the_fetch_reaches_this_repository_alone_and_reads_only(fetch):
    answers = {}

    def ask(argv):
        address = argv[-2]
        place = urlsplit(address)
        for what in (f"{address}/git-receive-pack", f"http://{place.netloc}/info/refs?service=git-upload-pack"):
            try:
                urllib.request.urlopen(what, timeout=10)
            except urllib.error.HTTPError as error:
                answers[what] = error.code

    fetch(during=ask)
    assert list(answers.values()) == [404, 404]


@pytest.mark.parametrize("text", ["", "ghp_token", "github.com=ghp", "user@github.com", "a/b", "github.com:x"])
def test_a_host_is_a_name_with_or_without_a_port(text):
    assert not is_host(text)
    assert is_host("github.com") and is_host("127.0.0.1:8080")
