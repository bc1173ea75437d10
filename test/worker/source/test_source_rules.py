"""Rules of a source that need no process: references of git, and reasons."""

import pytest

from gleaner_worker.jobs.process import ProcessEnd
from gleaner_worker.source.commands import CommandResult
from gleaner_worker.source.git import reference_of


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
    assert CommandResult(ProcessEnd(1, None, None), output).why == reason
