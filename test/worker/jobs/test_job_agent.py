"""Agents that lease jobs, finish them, and release the chips before a job."""

import json
import os
import signal

import pytest

from agent_process import ended, preempt, release_of
from build import BUCKET, a_stream, a_work_answer, text_lines
from job_attempts import ONE_SLICE, an_order, needs_root, processes_of

pytestmark = [needs_root, pytest.mark.slow]


def a_job_answer(job="j1", epoch=2, **changes):
    folder = f"jobs/{job}/epoch_{epoch}/"
    order = an_order(id=job, folder=folder, **changes)
    return {
        "action": "job",
        "lease": {"job": job, "epoch": epoch},
        "slice": ONE_SLICE,
        "job": order,
        "heartbeat_s": 0.1,
    }


@pytest.fixture
def job_agent(agent, tmp_path):
    yield agent
    assert processes_of(tmp_path / "home") == []


@pytest.fixture
def hold_until_heartbeat(cloud, tmp_path):
    """The first heartbeat of a job ends its command HOLD, which runs in the folder of the job."""
    answer = cloud.on_heartbeat

    def on_heartbeat(body):
        lease = body["lease"] or {}
        folder = tmp_path / "home" / "jobs" / f"{lease.get('job')}-e{lease.get('epoch')}"
        if folder.exists():
            (folder / "go").touch()
        return answer(body)

    cloud.on_heartbeat = on_heartbeat


HOLD = "until [[ -e go ]]; do sleep 0.05; done"


def heartbeats(cloud, job):
    return [a for a in cloud.asked if a["action"] == "heartbeat" and (a["lease"] or {}).get("job") == job]


@pytest.mark.usefixtures("hold_until_heartbeat")
def test_an_agent_runs_the_next_job_after_a_failed_job(cloud, storage, job_agent):
    cloud.attributes["gleaner-job-egress"] = "none"
    cloud.leases = [
        a_job_answer(command="echo 42 > $JOB_RESULT"),
        a_job_answer("j2", 1, command=["false"]),
        a_job_answer("j3", 5, command=["bash", "-c", f"{HOLD}; readlink /proc/self/ns/net > $JOB_ARTIFACTS/x"]),
    ]
    ended(job_agent())
    first, second, third = cloud.finishes()
    assert {key: first[key] for key in ("lease", "outcome", "cause", "error", "exit_code", "result")} == {
        "lease": {"job": "j1", "epoch": 2},
        "outcome": "completed",
        "cause": None,
        "error": None,
        "exit_code": 0,
        "result": "42\n",
    }
    assert first["ran"].keys() == {"bundle", "worker_bundle", "repo", "commit", "jax_version", "environment"}
    assert (second["outcome"], second["cause"], second["lease"]["job"]) == ("failed", "exit", "j2")
    assert (third["outcome"], third["has_artifacts"]) == ("completed", True)
    network = storage.data(BUCKET, "jobs/j3/epoch_5/artifacts/x").decode().strip()
    assert network.startswith("net:") and network != os.readlink("/proc/self/ns/net")
    assert {a["phase"] for a in heartbeats(cloud, "j3")} <= {"loading", "running", "uploading"}
    assert all(a["progress"] is None for a in heartbeats(cloud, "j3")) and heartbeats(cloud, "j3")


def test_an_agent_releases_the_chips_before_a_job_and_keeps_its_log(cloud, storage, job_agent, tiny_folder, tmp_path):
    cloud.leases = [
        a_work_answer(a_stream(storage, text_lines(5)), model=tiny_folder),
        a_job_answer(code="result = 'after a stream'"),
    ]
    ended(job_agent())
    assert release_of(cloud) == ("completed", None)
    assert [finish["result"] for finish in cloud.finishes()] == ["after a stream"]
    assert len(cloud.hellos) == 2 and not (tmp_path / "home" / "order").exists()
    log = storage.data(BUCKET, "logs/tpu-us-central1-a-0/3.log").decode()
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert "Restarting the agent, because it holds the chips that job j1 needs" in messages
    assert any(text.startswith("Leased stream") for text in messages) and messages[-1].startswith("Exiting")


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["the next epoch", "409", "stop"])
def test_a_host_stops_an_attempt_that_is_over_and_requests_another_lease(cloud, storage, job_agent, how):
    cloud.attributes["agent-worker-number"] = "1"
    hosts = {"host": 1, "hosts": 2, "addresses": ["10.0.0.1", "10.0.0.2"], "port": 8482, "slice": 0, "slices": 1}
    cloud.leases = [a_job_answer(command="echo begun; sleep 1000") | {"slice": hosts}]
    answer = cloud.on_heartbeat

    def is_running(body):
        names = storage.names(BUCKET, "jobs/j1/epoch_2/host_1/output/")
        return body["action"] == "heartbeat" and body["lease"] and names

    if how == "409":
        cloud.status = lambda body: 409 if is_running(body) else 200
    elif how == "stop":
        cloud.action = lambda body: "stop" if is_running(body) else "continue"
    else:
        held = {"job": "j1", "epoch": 2}
        cloud.on_heartbeat = lambda body: answer(body) | {"lease": held | {"epoch": 3} if is_running(body) else held}
    ended(job_agent())
    assert cloud.finishes() == [] and [a["action"] for a in cloud.asked].count("lease") == 2
    assert {body["host"] for body in cloud.asked} == {1} and storage.names(BUCKET, "logs/")[-1].endswith("/3.1.log")


def test_an_agent_without_an_answer_ends_its_job_before_another_worker_may_get_it(cloud, storage, job_agent):
    cloud.leases = [a_job_answer(command="echo begun; sleep 1000", fence_s=1.0)]

    def is_cut(body):
        return body["action"] == "heartbeat" and body["lease"] and storage.names(BUCKET, "jobs/j1/epoch_2/output/")

    cloud.status = lambda body: 503 if is_cut(body) else 200
    ended(job_agent())
    assert cloud.finishes() == [] and [a["action"] for a in cloud.asked].count("lease") == 2


def test_a_cancelled_job_stores_what_it_has_and_reports_its_checkpoint(cloud, storage, job_agent):
    checkpoint = {"bucket": BUCKET, "folder": "checkpoints/j1/", "versions": []}
    limits = {"max_gb": 1, "max_files": 10, "every_s": 10}
    end = "echo kept > $JOB_ARTIFACTS/x; echo 7 > $JOB_CHECKPOINT/step; exit 0"
    script = f"trap '{end}' TERM; echo begun; while :; do sleep 0.1; done"
    cloud.leases = [a_job_answer(command=script, checkpoint=checkpoint | limits)]
    cloud.action = lambda body: (
        "cancel" if body["lease"] and storage.names(BUCKET, "jobs/j1/epoch_2/output/") else "continue"
    )
    ended(job_agent())
    assert [(f["outcome"], f["has_artifacts"]) for f in cloud.finishes()] == [("preempted", True)]
    [stored] = [a for a in cloud.asked if a["action"] == "checkpoint"]
    assert (stored["version"]["files"], stored["version"]["bytes"], stored["problem"]) == (1, 2, None)
    assert [a["action"] for a in cloud.asked].index("checkpoint") < [a["action"] for a in cloud.asked].index("finish")


@pytest.mark.usefixtures("hold_until_heartbeat")
def test_a_drained_agent_lets_its_job_finish(cloud, storage, job_agent):
    cloud.leases = [a_job_answer(command=f"{HOLD}; echo done > $JOB_RESULT")]
    cloud.action = lambda body: "drain" if body["lease"] else "continue"
    ended(job_agent())
    assert [(f["outcome"], f["result"]) for f in cloud.finishes()] == [("completed", "done\n")]
    assert heartbeats(cloud, "j1")


@pytest.mark.sample(2)
@pytest.mark.parametrize("notice", ["SIGTERM", "metadata", "maintenance"])
def test_a_preempted_vm_stores_the_artifacts_of_its_job(cloud, storage, job_agent, notice):
    script = "trap 'echo saved > $JOB_ARTIFACTS/state; exit' TERM; echo begun; while :; do sleep 0.1; done"
    cloud.leases = [a_job_answer(command=script)]
    process = job_agent()
    cloud.wait(lambda asked: storage.names(BUCKET, "jobs/j1/epoch_2/output/"))
    preempt(cloud, process, notice)
    ended(process)
    finish = cloud.finishes()[0]
    assert (finish["outcome"], finish["cause"], finish["has_artifacts"]) == ("preempted", None, True)
    assert storage.data(BUCKET, "jobs/j1/epoch_2/artifacts/state") == b"saved\n"


@pytest.mark.sample(1)
@pytest.mark.parametrize("notice", ["SIGTERM", "metadata"])
def test_a_job_ended_by_the_shutdown_of_its_vm_is_preempted(cloud, storage, job_agent, tmp_path, notice):
    """The system ends all processes at once, so the job may end before the agent has the notice."""
    cloud.leases = [a_job_answer(command="echo begun; sleep 1000")]
    process = job_agent()
    cloud.wait(lambda asked: storage.names(BUCKET, "jobs/j1/epoch_2/output/"))
    for pid in processes_of(tmp_path / "home"):
        os.kill(pid, signal.SIGTERM)
    preempt(cloud, process, notice)
    ended(process)
    assert [(f["outcome"], f["cause"]) for f in cloud.finishes()] == [("preempted", None)]


def test_an_agent_repeats_an_unanswered_finish(cloud, storage, job_agent):
    cloud.leases = [a_job_answer(command=["true"])]
    failures = [503, 503]
    cloud.status = lambda body: failures.pop() if body["action"] == "finish" and failures else 200
    ended(job_agent())
    assert [f["outcome"] for f in cloud.finishes()] == ["completed"] * 3


def test_an_agent_deletes_a_damaged_order_and_continues(cloud, storage, job_agent, tmp_path):
    (tmp_path / "home" / "order").write_text('{"lease": ')
    ended(job_agent())
    assert cloud.finishes() == [] and not os.path.exists(tmp_path / "home" / "order")


def test_an_agent_of_the_local_cloud_without_isolation_runs_jobs_as_its_own_user(cloud, storage, job_agent):
    cloud.leases = [a_job_answer(command="setsid sleep 1000 & echo $(id -u) $! > $JOB_RESULT")]
    ended(job_agent(GLEANER_JOB_ISOLATION="none"))
    (finish,) = cloud.finishes()
    uid, daemon = finish["result"].split()
    assert (int(uid), os.path.exists(f"/proc/{daemon}")) == (os.getuid(), False)
