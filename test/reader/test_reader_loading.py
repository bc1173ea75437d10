"""Batches in the processes of training code: each row once, or an error within seconds. test/reference has torch's."""

import json
import os
import subprocess
import sys

import pytest

from stored_run import store_run

pytestmark = pytest.mark.slow

PROCESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loading_process.py")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The facts of loading_process.py, and the rows of its run by their format, sorted."""
    folder = tmp_path_factory.mktemp("runs")
    plain = store_run(folder / "plain", dtype="fp32", count=12)
    pickled = store_run(folder / "pickled", "pkl.gz", "fp32", count=12)
    done = subprocess.run([sys.executable, "-W", "ignore", PROCESS, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {
        name: sorted(row.tobytes().hex() for row in stored.rows("resid_post.2"))
        for name, stored in (("plain", plain), ("pickled", pickled))
    }
    return json.loads(done.stdout), rows


@pytest.mark.parametrize("case", ["plain 1", "plain 3", "pickled 8"])
def test_workers_of_a_loader_give_each_row_once_and_a_new_order_in_each_loop(loaded, case):
    facts, rows = loaded
    loops = facts["loops_of_a_loader"][case]
    for loop in loops:
        assert sorted(loop) == rows[case.split()[0]]
    assert loops[0] != loops[1]


def test_workers_that_stay_begin_a_whole_epoch_after_a_loop_that_was_left(loaded):
    facts, rows = loaded
    left, first, second = facts["loops_of_workers_that_stay"]
    assert left == 2 and first != second
    assert sorted(first) == sorted(second) == rows["plain"]


@pytest.mark.parametrize("case", ["a_dataset_of_a_person", "pickled_for_the_workers"])
def test_batches_that_each_worker_makes_or_unpickles_are_divided_between_the_workers(loaded, case):
    facts, rows = loaded
    assert sorted(facts[case]) == rows["plain"]


def test_a_fork_during_a_prefetch_gives_each_row_once_in_workers_and_an_error_elsewhere(loaded):
    facts, rows = loaded
    in_workers, alone, goes_on, state = facts["a_fork_while_the_next_rows_are_read"]
    assert sorted(in_workers) == rows["pickled"]
    assert alone.startswith("RuntimeError: process ") and "would return the same rows; make them in" in alone
    assert goes_on and "only they know their places" in state


def test_a_fork_within_an_iteration_over_a_layer_raises(loaded):
    facts, _ = loaded
    assert "is a fork of it; begin the iteration" in facts["a_fork_within_a_layer"]


def test_a_layer_is_iterated_by_one_worker_and_refused_by_several(loaded):
    facts, _ = loaded
    several, one = facts["a_layer_in_workers"]
    assert "each of the 2 workers of this DataLoader would return every row" in several and "run.batches" in several
    assert one == 6  # arrays, one for each shard


def test_processes_with_named_shares_give_each_row_once(loaded):
    facts, rows = loaded
    divided, both = facts["named_shares"]
    assert sorted(divided) == rows["plain"]
    assert both.startswith("RuntimeError")
    first, second = facts["shares_of_workers_of_two_machines"]
    assert sorted(first + second) == rows["plain"] and first and second


def test_a_state_or_share_that_cannot_be_kept_is_refused_with_the_remedy(loaded):
    facts, _ = loaded
    state, small, resumed, endless, wrong = facts["refusals"]
    assert state.startswith("ValueError: the workers of a DataLoader have iterated these batches")
    assert small.startswith("ValueError: no batch of 300 rows can be made of share") and "or fewer workers" in small
    assert resumed.startswith("ValueError: these batches resume within an epoch")
    assert endless == 6  # two of eight workers have no shard of the six, and end
    assert wrong.startswith("ValueError: share is (2, 2); pass (number, of)")


def test_a_fork_has_its_own_client_of_cloud_storage(loaded):
    facts, _ = loaded
    assert facts["clients"] == [False, True]
