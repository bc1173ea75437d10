"""Answers of worker-api to startup.sh during the setup of a host."""

import pytest

from fake_cloud import SECRET
from gleaner_worker.agent import metadata
from gleaner_worker.agent.api import WorkerApi
from startup_script import SOURCE, bash

pytestmark = pytest.mark.slow

WHO = '"worker":"tpu-us-central1-a-0","incarnation":3,"host":0'


def run_heartbeats(cloud, most=100, **env):
    """Runs the heartbeats of a setup fast, until worker-api or their number ends it. Returns the console's lines."""
    settings = {
        "GCE_METADATA_HOST": cloud.host,
        "API": cloud.attributes["gleaner-api"],
        "WORKER": "tpu-us-central1-a-0",
        "INCARNATION": "3",
        "WORKER_NUMBER": "0",
        "TICKET": "T" * 43,
        "WHO": WHO,
        "HELLO": f'{{"action":"hello",{WHO},"ticket":"{"T" * 43}"}}',
        "GLEANER_HOME": "/nowhere",
        "SECRET": SECRET,
    }
    count = f'sleep() {{ echo >> "$BEATS"; (($(wc -l < "$BEATS") != {most})) || kill "$SETUP"; }}'
    run = f"{SOURCE}; BEATS=$(mktemp); {count}; command sleep 1000 & SETUP=$!; beat $SETUP; rm $BEATS"
    result = bash(run, **settings | env)
    assert result.returncode == 0, result.stderr
    assert not any(word in result.stderr for word in (SECRET, "an.identity", "T" * 43))
    return [line.partition(" startup: ")[2] for line in result.stderr.splitlines() if " startup: " in line]


def leave(body):
    return {"action": "exit", "reason": "gone"}


def test_the_console_shows_each_change_of_the_status(cloud):
    answers = [404, 404, 503, 200]
    cloud.status = lambda body: answers.pop(0) if answers else 200
    cloud.on_heartbeat = leave
    lines = run_heartbeats(cloud)
    assert lines[:-1] == [f"The answer of worker-api is: {status}" for status in (404, 503, 200)]
    assert "not wanted any more" in lines[-1]
    assert len(cloud.hellos) == 4


def test_the_console_shows_once_that_worker_api_is_unreachable(cloud):
    lines = run_heartbeats(cloud, most=3, API="http://127.0.0.1:1/")
    assert lines == ["The answer of worker-api is: none (curl: 7)"]


def test_the_console_shows_once_that_there_is_no_identity_token(cloud):
    cloud.identity_token = None
    expected = "The answer of worker-api is: none, because the metadata server gives no identity token"
    assert run_heartbeats(cloud, most=3) == [expected]


def test_the_audience_of_a_token_is_the_exact_address_of_worker_api(cloud, monkeypatch):
    cloud.attributes["gleaner-api"] += "+a/b%20c%26d"
    cloud.on_heartbeat = leave
    run_heartbeats(cloud)
    assert cloud.audiences == {cloud.attributes["gleaner-api"]}
    cloud.audiences.clear()
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    WorkerApi(metadata.load_identity(), SECRET).hello()
    assert cloud.audiences == {cloud.attributes["gleaner-api"]}


REFUSAL = {"action": "exit", "error": "the secret is not that of host 0"}


def test_a_secret_that_a_restored_database_forgot_is_bound_again_during_the_setup(cloud):
    """The database is restored twice: before the second and before the fourth heartbeat."""
    cloud.refusal = REFUSAL
    forgotten = [False, True, False, True, False]
    cloud.status = lambda body: 403 if body["action"] == "heartbeat" and forgotten and forgotten.pop(0) else 200
    cloud.on_heartbeat = lambda body: {"action": "continue"} if forgotten else leave(body)
    lines = run_heartbeats(cloud)
    assert (len(cloud.hellos), len(cloud.asked)) == (3, 5)
    assert "not wanted any more" in lines[-1] and "gone" in lines[-1]


def test_a_setup_ends_when_a_repeated_hello_does_not_help(cloud):
    cloud.refusal = REFUSAL
    cloud.status = lambda body: 200 if body["action"] == "hello" else 403
    assert "the secret is not that of host 0" in run_heartbeats(cloud)[-1]
    assert (len(cloud.hellos), len(cloud.asked)) == (2, 2)


def test_a_setup_ends_when_the_repeated_hello_is_refused(cloud):
    cloud.refusal = REFUSAL
    cloud.status = lambda body: 403 if cloud.hellos else 200
    assert "the secret is not that of host 0" in run_heartbeats(cloud)[-1]
    assert (len(cloud.hellos), len(cloud.asked)) == (2, 1)
