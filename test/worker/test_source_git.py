"""Git sources: fetched as the job user from a real server, once and repeatedly."""

import os
import shutil
import threading

import pytest

from gleaner_worker.jobs.prepared import SourceFailed
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.source import commands as programs
from gleaner_worker.source import git
from gleaner_worker.source.commands import Commands
from gleaner_worker.source.git import check_out
from gleaner_worker.source.private import Repositories
from job_attempts import a_host, needs_root

pytestmark = [needs_root, pytest.mark.slow]


@pytest.fixture
def commands(tmp_path):
    return Commands(find_job_user(a_host(tmp_path / "home")), threading.Event())


@pytest.fixture
def fetch(tmp_path, server, commands):
    """fetch(branch=…) returns (the text of main.py, the commit, the folder)."""
    home = tmp_path / "home"

    def get(repo=None, **reference):
        jobs = str(home / "jobs")
        os.makedirs(jobs, exist_ok=True)
        folder, commit = check_out(
            {"repo": repo or server.repo, **reference},
            jobs,
            Commands(commands.user, threading.Event()),
            Repositories(),
        )
        with open(os.path.join(folder, "main.py"), encoding="utf-8") as file:
            return file.read(), commit, folder

    return get


def test_a_branch_is_fetched_for_the_agent_alone_and_its_commit_is_recorded(server, fetch):
    commit = server.commit({"main.py": "one", "lib/deep.py": "x"})
    text, fetched, folder = fetch(branch="main")
    assert (text, fetched) == ("one", commit)
    for path in (folder, f"{folder}/lib/deep.py"):  # no job can change them
        found = os.stat(path)
        assert found.st_uid == 0 and found.st_mode & 0o022 == 0 and found.st_mode & 0o004


def test_a_pull_request_is_fetched_twice_in_a_row(server, fetch):
    server.commit({"main.py": "one"})
    server.commit({"main.py": "pr"}, "refs/pull/12/head")
    assert fetch(pr=12)[0] == "pr"
    server.commit({"main.py": "pr again"}, "refs/pull/12/head")
    assert fetch(pr=12)[0] == "pr again"
    assert fetch(pr=12)[0] == "pr again"


def test_a_commit_is_fetched_by_its_hash(server, fetch):
    first = server.commit({"main.py": "one"}, "refs/heads/old")
    server.commit({"main.py": "two"})
    assert fetch(commit=first)[:2] == ("one", first)


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ({"branch": "nowhere"}, "refs/heads/nowhere"),
        ({"pr": 99}, "refs/pull/99/head"),
        ({"commit": "0" * 40}, "0" * 40),
    ],
)
def test_a_reference_that_does_not_exist_is_named_in_one_line(server, fetch, reference, why):
    server.commit({"main.py": "one"})
    with pytest.raises(SourceFailed, match=f"Failed to fetch {why} of http") as failed:
        fetch(**reference)
    assert failed.value.cause == "source" and "\n" not in failed.value.reason


def test_a_repository_that_cannot_be_reached_is_named(fetch):
    with pytest.raises(
        SourceFailed, match=r"Failed to fetch refs/heads/main of http://127.0.0.1:1/x.git: .*Failed to connect"
    ):
        fetch(repo="http://127.0.0.1:1/x.git", branch="main")


@pytest.mark.sample(2)
@pytest.mark.parametrize("repo", ["file:///etc", "ext::sh -c id", "ssh://127.0.0.1/x", "git://127.0.0.1/x"])
def test_a_source_with_another_transport_than_http_is_refused(fetch, repo):
    with pytest.raises(SourceFailed, match="transport .* not allowed|Failed to fetch"):
        fetch(repo=repo, branch="main")


def test_a_reference_is_never_an_option_of_git(server, fetch, tmp_path):
    server.commit({"main.py": "one"})
    with pytest.raises(SourceFailed):
        fetch(commit=f"--upload-pack=touch {tmp_path}/owned")
    assert not (tmp_path / "owned").exists()


def test_a_link_in_a_repository_leads_no_job_to_the_secret(server, fetch, tmp_path):
    server.commit({"main.py": "one"}, links={"stolen": str(tmp_path / "home" / "host-secret")})
    folder = fetch(branch="main")[2]
    assert os.path.islink(f"{folder}/stolen")
    assert os.stat(tmp_path / "home" / "host-secret").st_mode & 0o077 == 0


class Meddling(Commands):
    """A job beside the fetch: `meddle` changes the fetched tree as soon as git has ended."""

    def __init__(self, commands, meddle):
        super().__init__(commands.user, threading.Event())
        self._meddle = meddle

    def run(self, argv, folder, *rest, **more):
        said = super().run(argv, folder, *rest, **more)
        self._meddle(os.path.join(folder, "tree"))
        return said


def test_a_link_that_a_job_puts_in_the_place_of_the_fetched_tree_is_refused(server, commands, tmp_path):
    secrets = tmp_path / "home" / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "key").write_text("x")
    (secrets / "key").chmod(0o600)

    def meddle(tree):
        os.rename(tree, f"{tree}.old")
        os.symlink(secrets, tree)

    server.commit({"main.py": "one"})
    jobs = str(tmp_path / "home" / "jobs")
    os.makedirs(jobs)
    with pytest.raises(SourceFailed, match="replaced the folder of its files"):
        check_out({"repo": server.repo, "branch": "main"}, jobs, Meddling(commands, meddle), Repositories())
    assert [os.stat(path).st_mode & 0o777 for path in (secrets, secrets / "key")] == [0o700, 0o600]
    folder, _ = check_out({"repo": server.repo, "branch": "main"}, jobs, commands, Repositories())
    assert not os.path.islink(folder) and os.listdir(folder) == ["main.py"]


def test_hooks_and_attributes_of_a_repository_do_not_run(server, fetch, tmp_path, monkeypatch):
    """A job left a hook in the repository, and a filter in the configuration of its user."""

    def fetched(text):
        server.commit({"main.py": text, ".gitattributes": "*.py filter=planted"})
        assert fetch(branch="main")[0] == text

    fetched("one")
    (folder,) = (tmp_path / "home" / "jobs").glob("git-*/*")
    ran = folder / "ran"
    hook = folder / "repository" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho hook >> {ran}\n")
    hook.chmod(0o755)
    (folder / ".gitconfig").write_text(f'[filter "planted"]\n  smudge = "echo filter >> {ran}; cat"\n')
    fetched("two")
    assert not ran.exists()
    monkeypatch.setattr(git, "_environment", lambda repo: {})  # both run without the settings of the fetch
    fetched("three")
    assert sorted(ran.read_text().split()) == ["filter", "hook"]


def test_a_branch_after_a_forced_push_has_its_new_files_alone_and_the_old_folder_stays(server, fetch):
    server.commit({"main.py": "one", "old.py": "x", "place": "a file"})
    old = fetch(branch="main")[2]
    server.commit({"main.py": "two", "place/deep.py": "a folder"})
    text, _, folder = fetch(branch="main")
    assert text == "two"
    assert sorted(os.listdir(folder)) == ["main.py", "place"] and os.listdir(f"{folder}/place") == ["deep.py"]
    with open(f"{old}/main.py", encoding="utf-8") as file:
        assert file.read() == "one"


def test_a_fetch_succeeds_after_a_killed_fetch(server, fetch, tmp_path):
    server.commit({"main.py": "one"})
    fetch(branch="main")
    (repository,) = (tmp_path / "home" / "jobs").glob("git-*/*/repository")
    for name in ("shallow.lock", "index.lock", "FETCH_HEAD.lock", "config.lock"):
        (repository / name).touch()
    server.commit({"main.py": "two"})
    assert fetch(branch="main")[0] == "two"


def test_the_repository_does_not_grow_with_the_number_of_fetches(server, fetch, tmp_path, monkeypatch):
    monkeypatch.setitem(git._SETTINGS, "gc.autoPackLimit", "1")
    for number in range(3):
        server.commit({"main.py": f"{number}", "noise": os.urandom(300_000).hex()})
        assert fetch(branch="main")[0] == f"{number}"
    (repository,) = (tmp_path / "home" / "jobs").glob("git-*/*/repository")
    size = sum(path.stat().st_size for path in repository.rglob("*") if path.is_file())
    assert size < 2 * 400_000


def test_a_fetch_on_a_vm_without_git_is_refused_with_the_cause(server, fetch, tmp_path, monkeypatch):
    server.commit({"main.py": "one"})
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "rm", "mkdir", "find"):
        (tools / name).symlink_to(shutil.which(name))
    tmp_path.chmod(0o755)
    monkeypatch.setattr(programs, "SYSTEM_PATH", str(tools))
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(SourceFailed, match="Failed to fetch refs/heads/main of .*: git is not installed on this VM"):
        fetch(branch="main")
