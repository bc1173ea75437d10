"""Git sources: fetched as the job user from a real server, once and repeatedly."""

import os
import shutil
import threading

import pytest

from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.source import commands as programs
from gleaner_worker.source import git
from gleaner_worker.source.commands import Commands
from gleaner_worker.source.git import check_out
from gleaner_worker.source.private import Repositories
from job_attempts import a_host, needs_root

pytestmark = [needs_root, pytest.mark.slow]


@pytest.fixture
def fetch(tmp_path, server):
    """fetch(branch=…) returns (the text of main.py, the commit, the folder)."""
    home = tmp_path / "home"
    env = a_host(home)

    def get(repo=None, **reference):
        jobs = str(home / "jobs")
        os.makedirs(jobs, exist_ok=True)
        folder, commit = check_out(
            {"repo": repo or server.repo, **reference},
            jobs,
            Commands(find_job_user(env), threading.Event()),
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


def test_filters_and_submodules_of_a_repository_do_nothing_and_no_fetch_finds_an_earlier_one(
    server, fetch, tmp_path, monkeypatch
):
    """The repository names a filter, whose configuration a person of the machine has, and a submodule."""
    config = tmp_path / "config"
    config.write_text(f'[filter "planted"]\n  smudge = "echo filter > {tmp_path}/ran; cat"\n')
    files = {
        ".gitattributes": "*.py filter=planted",
        ".gitmodules": f'[submodule "a"]\n  path=a\n  url={server.repo}\n',
    }
    server.commit({"main.py": "one", **files})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    users, fetched = [], git._fetch
    monkeypatch.setattr(git, "_fetch", lambda *given: (users.append(given[3].user.uid), fetched(*given))[1])
    assert [fetch(branch="main")[0] for _ in range(2)] == ["one", "one"]
    assert users[0] != users[1] and not (tmp_path / "ran").exists()
    assert os.listdir(tmp_path / "home" / "jobs") == ["trees"]


@pytest.mark.parametrize("limit", ["_MAX_FILES", "_MAX_BYTES"])
def test_a_repository_over_a_limit_is_refused_before_its_files_are_written(server, fetch, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(git, limit, 2)
    server.commit({"main.py": "", "a/b": "xx", "a/c": "xx"})
    with pytest.raises(
        SourceFailed, match="Failed to fetch refs/heads/main of .*: it has more than .* files or .* bytes"
    ):
        fetch(branch="main")
    assert os.listdir(tmp_path / "home" / "jobs") == []


def test_a_branch_after_a_forced_push_has_its_new_files_alone_and_the_old_folder_stays(server, fetch):
    server.commit({"main.py": "one", "old.py": "x", "place": "a file"})
    old = fetch(branch="main")[2]
    server.commit({"main.py": "two", "place/deep.py": "a folder"})
    text, _, folder = fetch(branch="main")
    assert text == "two"
    assert sorted(os.listdir(folder)) == ["main.py", "place"] and os.listdir(f"{folder}/place") == ["deep.py"]
    with open(f"{old}/main.py", encoding="utf-8") as file:
        assert file.read() == "one"


def test_a_fetch_on_a_vm_without_git_is_refused_with_the_cause(server, fetch, tmp_path, monkeypatch):
    server.commit({"main.py": "one"})
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "awk", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name))
    tmp_path.chmod(0o755)
    monkeypatch.setattr(programs, "SYSTEM_PATH", str(tools))
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(SourceFailed, match="Failed to fetch refs/heads/main of .*: git is not installed on this VM"):
        fetch(branch="main")
