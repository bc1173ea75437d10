"""Attempts of jobs that end in another way than by themselves."""

import threading
import time

import pytest

from build import BUCKET
from gleaner_worker.failures import LeaseLost
from gleaner_worker.jobs.prepared import Prepared, SourceFailed
from gleaner_worker.jobs.tpu_settings import tpu_settings
from job_attempts import FOLDER, RAN, needs_root, prepare

pytestmark = [needs_root, pytest.mark.slow]


def start(runner):
    """Runs it on a thread; returns what it gave or raised, and waits for its end."""
    result = {}

    def run():
        try:
            result["ending"] = runner.run()
        except LeaseLost as error:
            result["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def wait():
        thread.join(60)
        assert not thread.is_alive()
        return result

    return wait


def wait_for(what):
    give_up = time.monotonic() + 30
    while not what() and time.monotonic() < give_up:
        time.sleep(0.02)
    assert what()


def test_a_timeout_ends_the_job_and_keeps_its_output(jobs):
    ending = jobs.run(command="echo begun; sleep 100", timeout_s=1.5)
    assert (ending["outcome"], ending["cause"], ending["exit_code"]) == ("failed", "timeout", 143)
    assert ending["error"] == "The job took longer than its timeout of 1.5 s" and jobs.output == "begun\n"


def test_memory_over_the_limit_of_the_job_is_its_own_failure(jobs):
    code = "x = bytearray(3 << 30)\nimport time\ntime.sleep(100)"
    ending = jobs.run(code=code, limits={"memory_gb": 1.5})
    assert (ending["outcome"], ending["cause"]) == ("failed", "memory")
    assert ending["error"] == "The job used more memory than its limit; raise limits.memory_gb"


def test_a_gigabyte_of_output_is_limited_and_no_failure(jobs):
    began = time.monotonic()
    ending = jobs.run(command="head -c 1000000000 /dev/zero | tr '\\0' x; echo 7 > $JOB_RESULT")
    assert (ending["outcome"], ending["result"]) == ("completed", "7\n")
    assert len(jobs.output) < 101 << 20 and "bytes of output are left out here" in jobs.output[-200:]
    assert time.monotonic() - began < 40


def test_a_source_that_cannot_be_fetched_fails_the_job_before_a_process(jobs):
    ending = jobs.run(code="result = 1", source={"repo": "https://example.com/x", "branch": "no"})
    assert (ending["outcome"], ending["cause"], ending["ran"]) == ("failed", "source", None)
    assert ending["error"] == "Failed to fetch: no such branch"


def test_a_host_without_isolation_fails_the_job_with_one_line(jobs, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    ending = jobs.run(code="result = 1")
    assert (ending["outcome"], ending["cause"]) == ("failed", "isolation")
    assert "start the agent as root" in ending["error"] and "\n" not in ending["error"]


def test_a_lost_lease_ends_the_process_and_writes_nothing_more(jobs):
    runner = jobs.runner(
        command="echo begun; trap 'echo x > $JOB_ARTIFACTS/late; exit' TERM; while :; do sleep 0.1; done"
    )
    wait = start(runner)
    wait_for(lambda: jobs.output)
    runner.request("drain")
    time.sleep(0.3)
    assert runner.phase == "running"
    runner.request("stop")
    assert isinstance(wait()["error"], LeaseLost)
    assert jobs.storage.names(BUCKET, "jobs/") == [f"{FOLDER}output/000001.txt"]


def test_a_preempted_job_saves_its_artifacts_after_term(jobs):
    script = "trap 'echo saved > $JOB_ARTIFACTS/state; exit' TERM; echo begun; while :; do sleep 0.1; done"
    runner = jobs.runner(command=script)
    wait = start(runner)
    wait_for(lambda: jobs.output)
    began = time.monotonic()
    runner.request("flush")
    ending = wait()["ending"]
    assert (ending["outcome"], ending["cause"], ending["has_artifacts"]) == ("preempted", None, True)
    assert jobs.storage.data(BUCKET, f"{FOLDER}artifacts/state") == b"saved\n"
    assert time.monotonic() - began < 15


@pytest.mark.long  # test_job_process.py kills a process that ignores TERM
def test_a_preempted_job_that_ignores_term_leaves_in_time(jobs):
    runner = jobs.runner(command="trap '' TERM; echo begun; while :; do sleep 0.1; done")
    wait = start(runner)
    wait_for(lambda: jobs.output)
    began = time.monotonic()
    runner.request("flush")
    assert wait()["ending"]["outcome"] == "preempted"
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("mode", "expected"), [("stop", "lost"), ("flush", "preempted")])
def test_a_preparation_that_is_stopped_is_no_failure_of_the_job(jobs, mode, expected):
    def prepare_slowly(_):
        assert runner.ended.wait(30)
        raise SourceFailed("machine", "The preparation was stopped, because the lease is over")

    runner = jobs.runner(prepare=prepare_slowly, code="result = 1")
    wait = start(runner)
    runner.request(mode)
    result = wait()
    assert ("lost" if isinstance(result.get("error"), LeaseLost) else result["ending"]["outcome"]) == expected


def test_a_restart_runs_the_job_again_with_the_new_source(jobs, tmp_path):
    def source(number):
        folder = tmp_path / f"source-{number}"
        folder.mkdir(mode=0o755)
        (folder / "version.py").write_text(f"NUMBER = {number}\n")
        first = prepare({"source": None})
        return Prepared(first.python, str(folder), RAN | {"commit": f"{number:040d}"}, {"EXTRA": str(number)})

    code = """
import os, time, version
print('version', version.NUMBER, os.getcwd() == os.environ['JOB_SOURCE'], os.environ['EXTRA'], flush=True)
if version.NUMBER == 1:
    time.sleep(100)
result = version.NUMBER
"""
    runner = jobs.runner(prepare=lambda order: source(1), code=code)
    wait = start(runner)
    wait_for(lambda: "version 1" in jobs.output)
    runner.restart(source(2))
    ending = wait()["ending"]
    assert (ending["outcome"], ending["result"]) == ("completed", "2")
    assert ending["ran"]["commit"] == f"{2:040d}"
    assert "version 1 True 1\n[gleaner] restarted" in jobs.output and "version 2 True 2\n" in jobs.output


def test_the_deadline_stays_over_a_restart(jobs):
    runner = jobs.runner(command="echo begun; sleep 100", timeout_s=3)
    began = time.monotonic()
    wait = start(runner)
    wait_for(lambda: jobs.output or time.monotonic() > began + 2)
    runner.restart(prepare({"source": None}))
    ending = wait()["ending"]
    assert ending["cause"] == "timeout" and time.monotonic() - began < 12


def test_the_settings_of_libtpu_come_from_the_metadata_of_the_vm():
    text = "ACCELERATOR_TYPE: 'v5litepod-8'\nALT: 'false'\nCHIPS_PER_HOST_BOUNDS: '2,4,1'\nTOPOLOGY: '2x4'\nBAD: '\n"
    assert tpu_settings(text) == {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_ID": "0",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,4,1",
        "TPU_TOPOLOGY": "2x4",
    }
    assert tpu_settings("") == {}
