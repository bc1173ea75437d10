"""Requests to worker-api and the metadata server that get malformed, late or no answers."""

import json
import logging
import socket
import threading
import traceback
from types import SimpleNamespace

import pytest

from build import fails
from fake_cloud import SECRET
from gleaner_worker.agent import agent, metadata
from gleaner_worker.agent import api as api_module
from gleaner_worker.agent.api import Refused, WorkerApi
from gleaner_worker.failures import LeaseLost
from hub_secret import LEASE, TOKEN
from local_server import Handler, LocalServer
from waiting import HANG_S

SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
NONSENSE = b"nonsense\r\n\r\n"
NO_ACTION = [b"HTTP/1.1 200 OK\r\n\r\n" + body for body in (b"{}", b"[]", b'{"action": 1}', b"[" * 100_000)]
BROKEN_ERROR = b"HTTP/1.1 503 Unavailable\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
DEEP_ERROR = b"HTTP/1.1 403 Forbidden\r\n\r\n" + b"[" * 2000


@pytest.fixture
def api(cloud, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    monkeypatch.setattr(api_module, "_FIRST_WAIT_S", 0.05)
    return WorkerApi(metadata.load_identity(), SECRET)


@pytest.mark.parametrize(
    "answer", [SHORT, NONSENSE, BROKEN_ERROR, DEEP_ERROR], ids=["short", "nonsense", "broken error", "deep error"]
)
def test_a_worker_repeats_a_lease_request_after_a_broken_answer(cloud, api, answer):
    answers = [answer]
    cloud.status = lambda body: answers.pop() if answers else 200
    assert api.lease(None)["action"] == "exit"
    answers.append(answer)
    with pytest.raises(OSError):
        api.heartbeat("idle", None, None)


@pytest.mark.parametrize("answer", NO_ACTION, ids=["empty", "list", "number", "deep"])
def test_a_worker_repeats_a_request_after_an_answer_without_an_action(cloud, api, answer):
    answers = [answer]
    cloud.status = lambda body: answers.pop() if answers else 200
    assert api.hello()["action"] == "continue"
    answers.append(answer)
    assert api.lease(None)["action"] == "exit"
    assert (len(cloud.hellos), len(cloud.asked)) == (2, 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_worker_retries_after_status_401_403_or_404_and_logs_one_error(cloud, api, caplog, status):
    answers = [status] * 3
    cloud.status = lambda body: answers.pop() if answers else 200
    with pytest.raises(OSError):
        api.heartbeat("idle", None, None)
    assert api.lease(None)["action"] == "exit"
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1 and f"Failed to heartbeat: worker-api answered {status}: " in errors[0]
    answers.extend([status] * 2)
    with pytest.raises(OSError):
        api.heartbeat("idle", None, None)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2


def test_a_worker_stops_its_requests_after_status_400(cloud, api):
    cloud.status = lambda body: 400
    with pytest.raises(Refused, match="Failed to lease: worker-api answered 400: .*a fault of the test"):
        api.lease(None)
    assert len(cloud.asked) == 1


def test_secrets_are_read_after_temporary_errors(cloud, api):
    answers = [503, 503]
    cloud.status = lambda body: answers.pop() if answers else 200
    cloud.given = lambda lease: {"hub": TOKEN}
    assert api.secrets(LEASE, lambda: None) == {"hub": TOKEN}
    assert [body["lease"] for body in cloud.asked] == [LEASE] * 3


def test_secrets_that_do_not_come_are_a_failure_of_the_machine(cloud, api, monkeypatch):
    monkeypatch.setattr(api_module, "_SECRETS_S", 0.01)
    cloud.status = lambda body: 503
    with fails("infrastructure", "Failed to read secrets: .*503.*; gave up after 0 s; read the log of worker-api"):
        api.secrets(LEASE, lambda: None)


def an_answer(body, missing=0):
    """The whole answer, or one without its last characters."""
    text = json.dumps(body)
    text = text[: len(text) - missing]
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()


def test_secrets_that_worker_api_may_not_read_are_a_failure_with_its_reason(cloud, api):
    cloud.status = lambda body: an_answer({"action": "none", "reason": "worker-api may not read it: gcloud secrets"})
    with fails("model", "Failed to read secrets: worker-api may not read it: gcloud secrets"):
        api.secrets(LEASE, lambda: None)


def test_a_check_that_raises_ends_the_repeated_requests_for_secrets(cloud, api):
    cloud.status = lambda body: 503

    def check():
        if len(cloud.asked) > 1:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        api.secrets(LEASE, check)


@pytest.mark.parametrize(
    "broken",
    [an_answer({"secrets": {"hub": TOKEN}}), an_answer({"action": "secrets", "secrets": TOKEN}, missing=1)],
    ids=["no action", "cut"],
)
def test_an_answer_with_secrets_that_is_broken_is_not_shown(cloud, api, monkeypatch, caplog, broken):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(api_module, "_SECRETS_S", 0.01)
    cloud.status = lambda body: broken
    with fails("infrastructure", "worker-api answered with") as failure:
        api.secrets(LEASE, lambda: None)
    assert TOKEN[:20] not in "".join(traceback.format_exception(failure.value)) + caplog.text


def test_every_request_carries_the_secret_of_the_host(cloud, api):
    assert api.hello()["action"] == "continue"
    api.heartbeat("idle", None, None)
    assert cloud.secrets == {SECRET}
    sender = {"worker": "tpu-us-central1-a-0", "incarnation": 3, "host": 0}
    assert cloud.hellos == [{"action": "hello", "ticket": "T" * 43, "hostname": socket.gethostname(), **sender}]


def test_a_worker_whose_secret_is_refused_says_hello_once_and_stops(cloud, api):
    cloud.refusal = {"action": "exit", "error": "the secret is not that of host 0"}
    cloud.status = lambda body: 200 if body["action"] == "hello" else 403
    with pytest.raises(Refused, match="Failed to heartbeat: worker-api answered 403: .*the secret is not"):
        api.heartbeat("idle", None, None)
    assert (len(cloud.asked), len(cloud.hellos)) == (2, 1)
    cloud.status = lambda body: 403
    with pytest.raises(Refused, match="Failed to hello: worker-api answered 403"):
        api.lease(None)
    assert (len(cloud.asked), len(cloud.hellos)) == (3, 2)


def test_a_worker_binds_its_secret_again_after_a_restore_of_the_database(cloud, api):
    cloud.refusal = {"action": "exit", "error": "the secret is not that of host 0"}
    cloud.status = lambda body: 200 if body["action"] == "hello" or cloud.hellos else 403
    assert api.heartbeat("idle", None, None)["action"] == "continue"
    assert (len(cloud.asked), len(cloud.hellos)) == (2, 1)


@pytest.mark.parametrize(
    ("ask", "most_hellos"),
    [
        (lambda api: api.heartbeat("idle", None, None), 1),
        (lambda api: api.release({"run": "r", "stream": "0", "epoch": 1}, "preempted", None, {}, 0.1), 3),
    ],
    ids=["heartbeat", "release"],
)
def test_a_hello_within_a_request_ends_within_the_time_limit_of_the_request(cloud, api, ask, most_hellos):
    cloud.refusal = {"action": "exit", "error": "the secret is not that of host 0"}
    # The fifth hello is answered, so that the test ends where a hello has no time limit.
    cloud.status = lambda body: (503 if len(cloud.hellos) < 4 else 200) if body["action"] == "hello" else 403
    with pytest.raises(OSError, match="503"):
        ask(api)
    assert 1 <= len(cloud.hellos) <= most_hellos


@pytest.mark.parametrize("silent", ["worker-api", "metadata server"])
def test_a_release_ends_within_its_time_limit_without_an_answer(cloud, api, monkeypatch, silent):
    held, answer = threading.Event(), cloud._metadata

    def hold(path):
        if path.endswith("/identity"):
            held.wait(HANG_S)
        return answer(path)

    if silent == "worker-api":
        cloud.status = lambda body: 200 if held.wait(HANG_S) else 503
    else:
        monkeypatch.setattr(cloud, "_metadata", hold)
    for limit in ("_POST_S", "_TOKEN_S"):  # a request without the limit of the release would wait for the answer
        monkeypatch.setattr(api_module, limit, HANG_S)
    with pytest.raises(OSError, match="timed out"):
        api.release({"run": "r", "stream": "0", "epoch": 1}, "preempted", None, {}, 0.5)
    held.set()


def test_an_agent_without_the_secret_of_its_host_does_not_start(cloud, tmp_path):
    with pytest.raises(SystemExit, match="Failed to start the agent: no secret of this host: .*boot the VM again"):
        metadata.load_secret(str(tmp_path))
    (tmp_path / "host-secret").write_text("secret\n")
    with pytest.raises(SystemExit, match="host-secret is not 64 hexadecimal digits; boot the VM again"):
        metadata.load_secret(str(tmp_path))


@pytest.mark.parametrize("missing", ["agent-worker-number", "gleaner-bucket"])
def test_a_missing_metadata_attribute_is_named(cloud, monkeypatch, missing):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    del cloud.attributes[missing]
    with pytest.raises(SystemExit, match=f"metadata attribute {missing} is missing; create the VM again"):
        metadata.load_identity()


@pytest.mark.parametrize("api", ["http://worker-api.example/", "https://me@worker-api.example/", "ftp://127.0.0.1/"])
def test_an_address_of_worker_api_that_would_show_the_token_is_refused(cloud, monkeypatch, api):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    cloud.attributes["gleaner-api"] = api
    with pytest.raises(SystemExit, match="metadata attribute gleaner-api is '.*', not an https:// address"):
        metadata.load_identity()


def test_the_network_of_jobs_is_a_setting_of_the_deployment(cloud, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    assert metadata.load_identity().jobs_have_network
    cloud.attributes["gleaner-job-egress"] = "none"
    assert not metadata.load_identity().jobs_have_network
    cloud.attributes["gleaner-job-egress"] = "some"
    with pytest.raises(SystemExit, match="metadata attribute gleaner-job-egress is 'some', not nat or none"):
        metadata.load_identity()


@pytest.fixture
def elsewhere():
    """A server other than worker-api; `elsewhere.requests` holds the headers of its requests."""
    requests: list[dict] = []

    class ElsewhereHandler(Handler):
        def do_GET(self):
            requests.append(dict(self.headers))
            self.wfile.write(b'HTTP/1.1 200 OK\r\n\r\n{"action": "exit"}')

        do_POST = do_GET

    server = LocalServer(ElsewhereHandler)
    yield SimpleNamespace(url=f"{server.url}/", requests=requests)
    server.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_receives_neither_token_nor_secret(cloud, api, elsewhere, caplog, status):
    redirect = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
    cloud.status = lambda body: redirect
    with pytest.raises(OSError, match=str(status)):
        api.heartbeat("idle", None, None)
    assert elsewhere.requests == []
    assert f"Failed to heartbeat: worker-api answered {status}" in caplog.text


def test_an_expired_token_is_replaced_at_once(cloud, api, caplog):
    answers = [401]
    cloud.status = lambda body: answers.pop() if answers else 200
    assert api.heartbeat("idle", None, None)["action"] == "continue"
    assert not caplog.records


@pytest.mark.parametrize("answer", [SHORT, NONSENSE], ids=["short", "nonsense"])
def test_a_broken_answer_of_the_metadata_server_is_an_oserror(cloud, api, answer):
    cloud.preempted = answer
    with pytest.raises(OSError, match="the metadata server's answer ended early"):
        metadata.get("instance/preempted")
    assert metadata.ending_notice() is None


@pytest.mark.parametrize(
    ("event", "status", "notice"),
    [
        (None, None, None),
        ("NONE", "PENDING", None),
        ("MIGRATE_ON_HOST_MAINTENANCE", "PENDING", None),
        ("TERMINATE_ON_HOST_MAINTENANCE", None, "stops for maintenance of its host"),
        ("NONE", "ONGOING", "stops for maintenance of its host"),
    ],
)
def test_a_maintenance_that_stops_the_vm_is_a_notice(cloud, monkeypatch, event, status, notice):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    cloud.maintenance_event, cloud.maintenance_status = event, status
    assert metadata.ending_notice() == notice


def test_an_agent_notices_a_preemption_after_an_unexpected_error(monkeypatch):
    answers = ["is preempted", RuntimeError("strange")]

    def ending_notice():
        if isinstance(answer := answers.pop(), Exception):
            raise answer
        return answer

    monkeypatch.setattr(agent, "ending_notice", ending_notice)
    monkeypatch.setattr(agent, "_NOTICES_EVERY_S", 0.01)
    watcher = agent.Agent.__new__(agent.Agent)
    watcher.preempted = threading.Event()
    watcher._watch_notices()
    assert watcher.preempted.is_set()
