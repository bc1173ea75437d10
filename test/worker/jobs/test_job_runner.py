"""Attempts of jobs that a limit, a preemption, a lost lease or a restart ends."""

import re
import shutil
import signal
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest

from build import BUCKET
from gleaner_worker.failures import LeaseLost
from gleaner_worker.jobs import process
from gleaner_worker.jobs import runner as runner_module
from gleaner_worker.jobs.output import OutputParts
from gleaner_worker.jobs.prepared_code import PreparedCode, SourceFailed
from job_attempts import FOLDER, ONE_SLICE, RAN, needs_root, start
from waiting import HANG_S, until

pytestmark = [needs_root, pytest.mark.slow]


def test_a_timeout_ends_the_job_and_keeps_its_output(jobs, monkeypatch):
    # The time is over when the job has printed.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (HANG_S if jobs.output else 0))
    monkeypatch.setattr(process, "time", clock)
    ending = jobs.run(command="echo begun; sleep 1000", timeout_s=HANG_S)
    assert (ending["outcome"], ending["cause"], ending["exit_code"]) == ("failed", "timeout", 143)
    assert ending["error"] == f"The job took longer than its timeout of {HANG_S} s; raise its timeout (--timeout)"
    assert jobs.output == "begun\n"


def test_the_time_in_which_jax_starts_counts_toward_no_timeout_and_is_printed(jobs, monkeypatch):
    # JAX starts for 40 s, twice the timeout. The time is over when the code has printed.
    def now():
        return time.monotonic() + 40 * ("importing" in jobs.output) + 1000 * ("begun" in jobs.output)

    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=now))
    jobs.write_jax("import time\nprint('importing', flush=True)\ntime.sleep(1.5)\n")
    code = "print('begun', flush=True)\nimport time\ntime.sleep(1000)"
    ending = jobs.run(code=code, timeout_s=20)
    assert (ending["outcome"], ending["cause"]) == ("failed", "timeout")
    assert re.match(r"importing\n\[gleaner\] JAX started in [1-9]\d*\.\d s\nbegun\n", jobs.output)


def test_code_that_waits_for_jax_for_ever_ends_at_the_limit_of_the_start(jobs, monkeypatch):
    monkeypatch.setattr(runner_module, "_START_S", 0.5)
    jobs.write_jax("import time\ntime.sleep(1000)\n")
    ending = jobs.run(code="result = 1", timeout_s=1)
    assert (ending["outcome"], ending["cause"]) == ("failed", "timeout")


def test_a_job_over_its_memory_limit_fails_with_the_limit_to_raise(jobs):
    code = "x = bytearray(200 << 20)\nimport time\ntime.sleep(1000)"
    ending = jobs.run(code=code, limits={"memory_gb": 0.1})
    assert (ending["outcome"], ending["cause"]) == ("failed", "memory")
    assert ending["error"] == "The job used more memory than its limit; raise limits.memory_gb"


@pytest.mark.parametrize(
    ("limits", "command"),
    [({"disk_gb": 0.01}, "head -c 30000000 /dev/zero > $TMPDIR/large"), ({"files": 50}, "touch $TMPDIR/{1..100}")],
    ids=["bytes", "files"],
)
def test_a_job_beyond_its_quota_of_disk_fails_with_the_limit_to_raise(jobs, limits, command):
    ending = jobs.run(command=f"{command}; sleep 1000", limits=limits)
    assert (ending["outcome"], ending["cause"]) == ("failed", "disk")
    assert ending["error"].endswith("raise limits.disk_gb or limits.files")
    assert jobs.run(command="true", limits=limits)["outcome"] == "completed"


def test_a_job_with_output_beyond_the_limit_completes_with_limited_output(jobs, monkeypatch):
    monkeypatch.setattr(runner_module, "OutputParts", partial(OutputParts, max_bytes=2 << 20))
    ending = jobs.run(command="head -c 5000000 /dev/zero | tr '\\0' x; echo; echo the end; echo 7 > $JOB_RESULT")
    assert (ending["outcome"], ending["result"]) == ("completed", "7\n")
    assert 2 << 20 < len(jobs.output) < 4 << 20 and jobs.output[: 2 << 20].strip("x") == ""
    assert "bytes of output are left out here" in jobs.output and jobs.output.endswith("the end\n")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("output/000001.txt", "echo honest"),
        ("artifacts/a", "echo honest > $JOB_ARTIFACTS/a"),
        ("result.txt", "head -c 300000 /dev/zero > $JOB_RESULT"),
    ],
)
def test_a_job_fails_where_another_writer_stored_its_output_artifact_or_result(jobs, storage, name, command):
    runner = jobs.runner(command=command)
    forged = storage.put(BUCKET, FOLDER + name, b"forged")
    ending = runner.run()
    assert (ending["outcome"], ending["cause"], ending["has_artifacts"]) == ("failed", "machine", False)
    assert re.search(f"exists with 6 bytes of crc32c {re.escape(forged['crc32c'])}, .* crc32c", ending["error"])
    assert ending["contradiction"]["object"] == FOLDER + name
    assert forged["crc32c"] in ending["contradiction"]["found"]


def test_a_job_whose_source_cannot_be_fetched_fails_before_its_process_starts(jobs):
    def fail(_):
        raise SourceFailed("source", "Failed to fetch: no such branch")

    ending = jobs.run(prepare=fail, code="result = 1")
    assert (ending["outcome"], ending["cause"], ending["ran"]) == ("failed", "source", None)
    assert ending["error"] == "Failed to fetch: no such branch"


def test_a_host_without_isolation_fails_the_job_with_one_line(jobs, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    ending = jobs.run(code="result = 1")
    assert (ending["outcome"], ending["cause"]) == ("failed", "isolation")
    assert "start the agent as root" in ending["error"] and "\n" not in ending["error"]


def test_a_lost_lease_ends_the_process_of_a_job_and_all_uploads(jobs):
    runner = jobs.runner(
        command="echo begun; trap 'echo x > $JOB_ARTIFACTS/late; exit' TERM; while :; do sleep 0.1; done"
    )
    wait = start(runner, lambda: jobs.output)
    runner.request("drain")
    assert (runner.phase, runner.ended.is_set()) == ("running", False)
    runner.request("stop")
    assert isinstance(wait()["error"], LeaseLost)
    assert jobs.storage.names(BUCKET, "jobs/") == [f"{FOLDER}output/000001.txt"]


def test_a_host_of_several_stores_what_it_printed_when_another_host_ends_the_attempt(jobs):
    script = "trap 'echo late; touch $JOB_ARTIFACTS/late; exit' TERM; echo begun; while :; do sleep 0.1; done"
    where = {"host": 1, "hosts": 2, "addresses": ["127.0.0.1"] * 2}
    runner = jobs.runner(command=script, slice=ONE_SLICE | where)
    folder = f"{FOLDER}host_1/"
    wait = start(runner, lambda: jobs.storage.names(BUCKET, folder))
    runner.request("stop")
    assert isinstance(wait()["error"], LeaseLost)
    names = jobs.storage.names(BUCKET, folder)
    assert all(name.startswith(f"{folder}output/") for name in names)
    assert b"".join(jobs.storage.data(BUCKET, name) for name in names).endswith(b"late\n")


def test_a_preempted_job_saves_its_artifacts_after_term(jobs):
    script = "trap 'echo saved > $JOB_ARTIFACTS/state; exit' TERM; echo begun; while :; do sleep 0.1; done"
    runner = jobs.runner(command=script)
    wait = start(runner, lambda: jobs.output)
    runner.request("flush")
    ending = wait()["ending"]
    assert (ending["outcome"], ending["cause"], ending["has_artifacts"]) == ("preempted", None, True)
    assert jobs.storage.data(BUCKET, f"{FOLDER}artifacts/state") == b"saved\n"


def test_a_preempted_job_has_the_artifacts_that_were_stored_before_its_deadline(jobs, monkeypatch):
    monkeypatch.setattr("gleaner_worker.jobs.runner._FLUSH_S", 0.0)
    runner = jobs.runner(command="touch $JOB_ARTIFACTS/{a,b}")
    jobs.storage.before_create = lambda name: "/artifacts/" in name and runner.request("flush")
    ending = runner.run()
    assert len(jobs.storage.names(BUCKET, f"{FOLDER}artifacts/")) == 1
    assert (ending["outcome"], ending["has_artifacts"]) == ("preempted", True)


def test_a_preempted_job_that_ignores_term_is_killed_in_time_for_its_uploads(jobs, monkeypatch):
    assert process._TERM_S < runner_module._FLUSH_S / 2
    monkeypatch.setattr(process, "_TERM_S", 0.1)
    runner = jobs.runner(command="trap '' TERM; echo begun; while :; do sleep 0.1; done")
    wait = start(runner, lambda: jobs.output)
    runner.request("flush")
    ending = wait()["ending"]
    assert (ending["outcome"], ending["exit_code"]) == ("preempted", 128 + signal.SIGKILL)


@pytest.mark.parametrize(("mode", "expected"), [("stop", "lost"), ("flush", "preempted")])
def test_a_job_whose_preparation_is_stopped_ends_without_a_failure(jobs, mode, expected):
    def prepare_slowly(_):
        assert runner.ended.wait(HANG_S)
        raise SourceFailed("machine", "The preparation was stopped, because the lease has ended")

    runner = jobs.runner(prepare=prepare_slowly, code="result = 1")
    wait = start(runner)
    runner.request(mode)
    result = wait()
    assert ("lost" if isinstance(result.get("error"), LeaseLost) else result["ending"]["outcome"]) == expected


def test_a_restart_runs_the_job_again_with_the_new_source(jobs, tmp_path):
    def source(number):
        folder = tmp_path / f"source-{number}"
        shutil.copytree(jobs.stand_in, folder)
        (folder / "version.py").write_text(f"NUMBER = {number}\n")
        return PreparedCode(sys.executable, str(folder), RAN | {"commit": f"{number:040d}"}, {"EXTRA": str(number)})

    code = """
import os, time, version
print('version', version.NUMBER, os.getcwd() == os.environ['JOB_SOURCE'], os.environ['EXTRA'], flush=True)
if version.NUMBER == 1:
    time.sleep(1000)
open(os.environ['JAX_COMPILATION_CACHE_DIR'] + '/jit_f-1-cache', 'w').write('compiled')
result = version.NUMBER
"""
    runner = jobs.runner(prepare=lambda order: source(1), code=code)
    wait = start(runner, lambda: "version 1" in jobs.output)
    runner.restart(source(2))
    ending = wait()["ending"]
    assert (ending["outcome"], ending["result"]) == ("completed", "2")
    assert ending["ran"]["commit"] == f"{2:040d}"
    assert "version 1 True 1\n[gleaner] restarted" in jobs.output and "version 2 True 2\n" in jobs.output
    assert not (jobs.home / "jobs" / "programs").exists()  # no later attempt of the first source gets a program


def test_a_restarted_job_keeps_its_deadline(jobs, monkeypatch):
    wall_s, began_at = [], []

    def note(argv, *, limits, **more):
        wall_s.append(limits.wall_s)
        began_at.append(time.monotonic())
        return process.run_process(argv, limits=limits, **more)

    monkeypatch.setattr(runner_module, "run_process", note)
    runner = jobs.runner(command="echo begun; sleep 1000", timeout_s=HANG_S)
    wait = start(runner, lambda: jobs.output)
    ran_s = time.monotonic() - began_at[0]
    runner.restart(jobs.prepare())
    until(lambda: len(wall_s) == 2)
    runner.request("flush")
    wait()
    assert wall_s[1] <= wall_s[0] - ran_s
