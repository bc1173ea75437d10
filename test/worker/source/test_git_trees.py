"""Trees of hostile repositories: their files stay in one folder of the agent, or the source fails with one line."""

import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from git_server import GitServer
from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.source.commands import Commands
from gleaner_worker.source.git import check_out
from gleaner_worker.source.private import Repositories
from job_attempts import a_host, needs_root

pytestmark = [needs_root, pytest.mark.slow]

FILE, LINK, FOLDER, MODULE = b"100644", b"120000", b"40000", b"160000"
_names = st.sampled_from(
    [b"main.py", b"a", b"b", b"..", b".", b"", b".git", b".GIT", b".git ", b".git\xe2\x80\x8c", b"git~1"]
    + [b".gitattributes", b".gitmodules", b"-rf", b"a/b", b"/tmp/planted", b"a\nb", b"\x1b[31m", b"\xff", b"n" * 300]
)
_files = st.tuples(
    st.sampled_from([FILE, b"100755", b"104755", b"100666", b"0", b"777777", b"x"]),
    _names,
    st.sampled_from([b"", b"text", b"* filter=a\n", b'[submodule "a"]\n\tpath = a\n\turl = ..\n', b"x" * 1000]),
)
_targets = st.sampled_from([b"/etc", b"{outside}", b"..", b"../../outside", b".", b"a", b"", b"x" * 5000])
_links = st.tuples(st.just(LINK), _names, _targets)
_modules = st.tuples(st.just(MODULE), _names, st.just(b""))


def _trees(leaves):
    folders = st.tuples(st.just(FOLDER), _names, st.lists(leaves, max_size=3))
    return st.one_of(leaves, folders)


_entries = st.lists(st.recursive(st.one_of(_files, _links, _modules), _trees, max_leaves=6), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    top = tmp_path_factory.mktemp("git")
    server = GitServer(top / "server")
    (top / "outside").mkdir(mode=0o777)
    environment = a_host(top / "home")
    (top / "home" / "jobs").mkdir()
    yield top, server, environment
    server.close()


def fetched(repository, tree):
    """Checks a tree out, and returns its folder; None where it is refused. Compares what lies around the folder."""
    top, server, environment = repository
    server.commit_tree([*_placed(tree, str(top / "outside").encode()), (FILE, b"honest", b"x")])
    jobs = top / "home" / "jobs"
    source = {"repo": server.repo, "branch": "main"}
    try:
        folder, _ = check_out(
            source, str(jobs), Commands(find_job_user(environment), threading.Event()), Repositories()
        )
    except SourceFailed as error:
        assert error.cause == "source" and "\n" not in error.reason and len(error.reason) < 1500
        folder = None
    assert set(os.listdir(jobs)) <= {"trees"} and os.listdir(top / "outside") == []
    assert sorted(os.listdir(top)) == ["home", "outside", "server"]
    return folder


def _placed(part, outside):
    """The tree with the address of the folder outside in its links."""
    if isinstance(part, list):
        return [(mode, name, _placed(content, outside)) for mode, name, content in part]
    return part.replace(b"{outside}", outside) if isinstance(part, bytes) else part


def check_files(folder):
    assert "honest" in os.listdir(folder)
    for path, folders, names in os.walk(os.fsencode(folder)):
        for name in folders + names:
            assert name.lower() != b".git"
            found = os.lstat(os.path.join(path, name))
            assert (found.st_uid, found.st_mode & 0o6000) == (0, 0)
            assert os.path.islink(os.path.join(path, name)) or found.st_mode & 0o022 == 0


CASES = {
    "a hook": (
        True,
        [(FOLDER, b".git", [(FOLDER, b"hooks", [(b"100755", b"post-checkout", b"#!/bin/sh\ntouch /tmp/planted")])])],
    ),
    "a folder above": (True, [(FOLDER, b"..", [(FILE, b"planted", b"x")])]),
    "a path with a slash": (True, [(FILE, b"../outside/planted", b"x")]),
    "a link and a folder of one name": (
        False,
        [(LINK, b"a", b"{outside}"), (FOLDER, b"a", [(FILE, b"planted", b"x")])],
    ),
    "a submodule": (False, [(FILE, b".gitmodules", b'[submodule "a"]\n\tpath = a\n\turl = ..\n'), (MODULE, b"a", b"")]),
    "a link at the attributes": (False, [(LINK, b".gitattributes", b"/etc/passwd")]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_tree_is_checked_out_within_its_folder_or_refused(repository, name):
    is_refused, tree = CASES[name]
    folder = fetched(repository, tree)
    assert (folder is None) == is_refused
    if folder:
        check_files(folder)
    assert not os.path.exists("/tmp/planted")


@pytest.mark.parametrize(("depth", "width"), [pytest.param(1500, 1, marks=pytest.mark.long), (10, 10)])
def test_a_small_tree_of_many_levels_or_of_billions_of_files_is_refused(repository, depth, width):
    _, server, _ = repository
    tree = server.tree([(FILE, b"a", b"x")])
    for _ in range(depth):
        tree = server.tree([(FOLDER, b"d%d" % number, tree) for number in range(width)])
    assert fetched(repository, [(FOLDER, b"top", tree)]) is None


@settings(max_examples=settings().max_examples // 10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=_entries)
def test_any_tree_is_checked_out_within_its_folder_or_refused(repository, tree):
    if folder := fetched(repository, tree):
        check_files(folder)
