"""Rules of a source that need no process: references of git, reserved folders, sealed files, and reasons."""

import os

import pytest

from gleaner_worker.jobs.prepared import SourceFailed
from gleaner_worker.jobs.process import Ended
from gleaner_worker.jobs.user import JobUser
from gleaner_worker.source.commands import CommandResult
from gleaner_worker.source.git import reference_of
from gleaner_worker.source.ramfs import mount_ramfs
from gleaner_worker.source.sealed import NotSealed, seal


def test_a_branch_and_a_pull_request_become_references_of_git():
    assert reference_of({"repo": "r", "branch": "a/b"}) == "refs/heads/a/b"
    assert reference_of({"repo": "r", "pr": 3}) == "refs/pull/3/head"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("error: Failed to fetch\n\nhint: Consider something\n", "error: Failed to fetch"),
        ("hint: alone", "hint: alone"),
        (" \n", "it printed nothing"),
    ],
)
def test_the_reason_of_a_failed_command_is_its_last_line_except_for_hints(output, reason):
    assert CommandResult(Ended(1, None, None), output).why == reason


@pytest.mark.parametrize("path", ["/", "/proc/x", "/etc/x", "/usr/share/x", "/tmp", "/dev/shm/x"])
def test_a_folder_in_memory_inside_a_system_folder_is_refused(path, tmp_path):
    with pytest.raises(SourceFailed, match="the path is reserved; name another"):
        mount_ramfs(path, str(tmp_path))


def test_a_link_in_the_place_of_the_files_is_not_sealed(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (tmp_path / "tree").symlink_to(victim)
    with pytest.raises(NotSealed, match="replaced the folder of its files"):
        seal(str(tmp_path / "tree"), JobUser(12345, 12345))
    assert os.stat(victim).st_mode & 0o777 == 0o700
