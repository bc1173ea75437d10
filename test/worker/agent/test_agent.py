"""Agents that lease streams, follow worker-api, and end."""

import json
import re
import socket

import pytest

from agent_process import LONG, ended, release_of, shards_done
from build import BUCKET, a_stream, a_work_answer, outputs, shard_gb, text_lines

pytestmark = pytest.mark.slow


def test_an_agent_reports_failed_streams_and_extracts_the_next_stream(cloud, storage, agent, tiny_folder):
    empty = a_stream(storage, b"", stream="001")
    missing = a_stream(storage, text_lines(3), stream="002")
    planted = a_stream(storage, text_lines(3), stream="003")
    storage.put(BUCKET, "activations/my-run/tpu_3/metadata.json", b"planted")
    good = a_stream(storage, text_lines(30))
    cloud.leases = [
        a_work_answer(empty, stream="001", model=tiny_folder),
        {"action": "wait", "retry_s": 0.1, "reason": "nothing yet"},
        a_work_answer(missing, stream="002", model="/no/such/model"),
        a_work_answer(planted, stream="003", model=tiny_folder),
        a_work_answer(good, epoch=5, model=tiny_folder),
    ]
    ended(agent())
    kinds = ["stream", "model", "stream", None]
    assert [release_of(cloud, i) for i in range(4)] == [("failed" if kind else "completed", kind) for kind in kinds]
    assert "stream_001.jsonl: it has no lines" in cloud.releases()[0]["failure"]["reason"]
    assert "/no/such/model" in cloud.releases()[1]["failure"]["reason"]
    contradiction = cloud.releases()[2]["failure"]["contradiction"]
    assert contradiction["object"] == "activations/my-run/tpu_3/metadata.json"
    assert re.match("7 bytes of crc32c ", contradiction["found"]) and "bytes of crc32c" in contradiction["made"]
    last = cloud.releases()[3]
    assert last["lease"] == {"run": "my-run", "stream": "007", "epoch": 5}
    assert last["progress"]["samples_done"] == last["progress"]["samples_total"] == 30
    assert {(a["worker"], a["incarnation"], a["host"]) for a in cloud.asked} == {("tpu-us-central1-a-0", 3, 0)}
    assert storage.metadata(BUCKET, "activations/my-run/tpu_7/shard_0001.safetensors")["epoch"] == "5"
    leases = [a["loaded"] for a in cloud.asked if a["action"] == "lease"]
    assert leases[0] is None and leases[-1] == {"model": tiny_folder, "spec_hash": "5" * 64}
    beats = [a for a in cloud.asked if a["action"] == "heartbeat"]
    assert all(set(a["received"]) == {"nat_bytes", "bucket_bytes", "other_bytes"} for a in beats)
    phases = {a["phase"] for a in beats}
    assert phases <= {"idle", "loading", "compiling", "running", "uploading"}
    log = storage.data(BUCKET, "logs/tpu-us-central1-a-0/3.log").decode()
    assert any("it has no lines" in json.loads(line)["message"] for line in log.splitlines())


@pytest.mark.long
def test_an_agent_reads_the_weights_once_for_two_runs_of_the_same_model(cloud, storage, agent, tiny_folder):
    first, second = a_stream(storage, text_lines(5)), a_stream(storage, text_lines(5), run="other")
    cloud.leases = [
        a_work_answer(first, model=tiny_folder),
        a_work_answer(second, run="other", model=tiny_folder, layers=[1], dtype="fp16"),
    ]
    ended(agent())
    assert [release_of(cloud, i) for i in range(2)] == [("completed", None)] * 2
    models = [json.loads(storage.data(BUCKET, f"activations/{run}/model.json")) for run in ("my-run", "other")]
    assert models[0] == models[1]
    for run in ("my-run", "other"):
        summary = json.loads(storage.data(BUCKET, f"activations/{run}/tpu_7/metadata.json"))
        assert summary["model"] | {"schema": "gleaner/1"} == models[0]
        assert summary["versions"]["jax"] and summary["code"] is None
    log = storage.data(BUCKET, "logs/tpu-us-central1-a-0/3.log").decode()
    assert log.count("Reading the weights") == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["409", "stop"])
def test_an_agent_ends_the_stream_of_a_lost_lease_and_requests_another_lease(cloud, storage, agent, tiny_folder, how):
    cloud.leases = [a_work_answer(a_stream(storage, LONG), shard_size_gb=shard_gb(2000), model=tiny_folder)]
    if how == "409":
        cloud.status = lambda body: 409 if body["action"] == "heartbeat" and shards_done(body) else 200
    else:
        cloud.action = lambda body: "stop" if shards_done(body) else "continue"
    ended(agent())
    assert cloud.releases() == []
    assert [a["action"] for a in cloud.asked].count("lease") == 2
    assert "metadata.json" not in outputs(storage)


def test_a_host_whose_chips_jax_cannot_open_fails_before_it_fetches_a_model(cloud, storage, agent):
    cloud.leases = [a_work_answer(a_stream(storage, text_lines(3)), model="/no/such/model")]
    ended(agent(JAX_PLATFORMS="tpu"))
    release = cloud.releases()[0]
    assert release_of(cloud) == ("failed", "infrastructure")
    assert "Unable to initialize backend 'tpu'" in release["failure"]["reason"]


@pytest.mark.long
def test_a_drained_agent_releases_the_stream_after_the_current_shard(cloud, storage, agent, tiny_folder):
    cloud.leases = [a_work_answer(a_stream(storage, LONG), shard_size_gb=shard_gb(5000), model=tiny_folder)]
    cloud.action = lambda body: "drain" if shards_done(body) else "continue"
    ended(agent())
    assert release_of(cloud) == ("drained", None)
    shards = [name for name in outputs(storage) if name.startswith("shard_")]
    assert cloud.releases()[0]["progress"]["shards_done"] == len(shards) >= 2
    assert "metadata.json" not in outputs(storage)


def test_an_agent_told_to_exit_leaves_its_stream_and_ends(cloud, storage, agent, tiny_folder):
    cloud.leases = [a_work_answer(a_stream(storage, LONG), model=tiny_folder)] * 2
    cloud.action = lambda body: "exit" if body["lease"] else "continue"
    ended(agent())
    assert [a["action"] for a in cloud.asked].count("lease") == 1
    assert outputs(storage) == {}


@pytest.mark.long
@pytest.mark.parametrize("answered", [503, 403])
def test_an_agent_completes_its_stream_while_worker_api_fails(cloud, storage, agent, tiny_folder, answered):
    cloud.leases = [a_work_answer(a_stream(storage, LONG[:800]), model=tiny_folder)]
    failures_left = {"hello": 2, "token": 2, "lease": 2, "heartbeat": 10**9, "release": 2}

    def status(body):
        failures_left[body["action"]] -= 1
        return answered if failures_left[body["action"]] >= 0 else 200

    cloud.status = status
    ended(agent())
    assert cloud.releases()[-1]["outcome"] == "completed"
    assert "metadata.json" in outputs(storage)


@pytest.mark.long
def test_heartbeats_continue_after_a_malformed_answer(cloud, storage, agent):
    cloud.leases = [{"action": "wait", "retry_s": 0.05}] * 10_000
    answer, malformed = cloud.on_heartbeat, [{}, {"action": "continue", "heartbeat_s": "soon"}]
    cloud.on_heartbeat = lambda body: malformed.pop() if malformed else answer(body)
    process = agent()
    cloud.wait(lambda asked: [a["action"] for a in asked].count("heartbeat") > 3)
    cloud.leases = []
    ended(process)


def test_an_agent_that_worker_api_refuses_exits_with_an_error(cloud, storage, agent):
    cloud.refusal = {"action": "exit", "error": "the secret is not that of host 0"}
    cloud.status = lambda body: 403
    process = agent()
    assert process.wait(600) == 1
    assert "worker-api answered 403" in (said := process.stderr.read()) and "not that of host 0" in said


def test_an_agent_stores_its_log_after_the_lines_of_the_boot_in_the_bucket_of_logs(cloud, storage, agent, tmp_path):
    cloud.attributes["gleaner-logs-bucket"] = "the-logs"
    (tmp_path / "home" / "host.log").write_text("2026-11-25T00:00:00Z startup: Step of the boot: agent\n")
    ended(agent())
    log = storage.data("the-logs", "logs/tpu-us-central1-a-0/3.log")
    assert log.startswith(b"2026-11-25T00:00:00Z startup: Step") and b"Exiting" in log
    assert storage.names(BUCKET, "logs/") == []


@pytest.mark.long
@pytest.mark.parametrize(("action", "outcome"), [("drain", "drained"), ("stop", None)])
def test_an_agent_reports_an_unreachable_hub_and_obeys_worker_api(cloud, storage, agent, action, outcome):
    cloud.attributes["gleaner-hf-endpoint"] = "http://127.0.0.1:9"  # a closed port
    cloud.leases = [a_work_answer(a_stream(storage, text_lines(3)), model="an-org/a-model", revision=None)]
    reported = []

    def act(body):
        waits_for = (body["progress"] or {}).get("waits_for")
        reported.append((body["phase"], waits_for))
        return action if waits_for is not None and waits_for.endswith(", try 2") else "continue"

    cloud.action = act
    ended(agent())
    assert ("loading", "127.0.0.1:9: ConnectionRefusedError: [Errno 111] Connection refused, try 2") in reported
    assert [release["outcome"] for release in cloud.releases()] == ([outcome] if outcome else [])
    lines = [json.loads(line) for line in storage.data(BUCKET, "logs/tpu-us-central1-a-0/3.log").decode().splitlines()]
    waits = [line for line in lines if line["message"].startswith("Waiting for 127.0.0.1:9: ConnectionRefusedError")]
    assert len(waits) >= 2 and {line["severity"] for line in waits} == {"WARNING"}


def test_an_agent_reports_a_silent_hub_before_the_next_regular_heartbeat(cloud, storage, agent):
    reported = []

    def act(body):
        reported.append((body["progress"] or {}).get("waits_for"))
        return "stop" if reported[-1] else "continue"

    cloud.action, cloud.heartbeat_s = act, 3600
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts connections; nothing answers
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        cloud.attributes["gleaner-hf-endpoint"] = f"http://{host}"
        work = a_work_answer(a_stream(storage, text_lines(3)), model="an-org/a-model", revision=None)
        cloud.leases = [work | {"heartbeat_s": 3600}]
        process = agent()
        ended(process)
    first = next(filter(None, reported))
    assert first.startswith(f"{host}: TimeoutError") and first.endswith(", try 1")
