"""Secrets from worker-api: repeated requests, and errors that show nothing of them."""

import json
import logging
import traceback

import pytest

from build import fails
from fake_cloud import SECRET, boot
from gleaner_worker import secret
from gleaner_worker.agent import metadata
from gleaner_worker.agent.api import WorkerApi
from gleaner_worker.failures import LeaseLost
from gleaner_worker.secret import Secrets
from hub_secret import LEASE, TOKEN


def test_secrets_are_read_after_temporary_errors(secrets):
    secrets.fault = lambda: OSError("reset") if len(secrets.asked) < 3 else None
    assert secrets.reader.read(LEASE, lambda: None) == {"hub": TOKEN, "git": TOKEN}
    assert secrets.asked == [LEASE] * 3


def test_secrets_that_do_not_come_are_a_failure_of_the_machine(secrets, monkeypatch):
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    secrets.fault = lambda: OSError("reset")
    with fails("infrastructure", "Failed to read secrets: reset; gave up after 0 s; read the log of worker-api"):
        secrets.reader.read(LEASE, lambda: None)


def test_secrets_that_worker_api_may_not_read_are_a_failure_with_its_reason(secrets):
    secrets.refuse("worker-api may not read it: gcloud secrets add-iam-policy-binding")
    with fails("model", "Failed to read secrets: worker-api may not read it: gcloud secrets"):
        secrets.reader.read(LEASE, lambda: None)


def test_a_check_that_raises_ends_the_repeated_requests(secrets):
    secrets.fault = lambda: OSError("reset")

    def check():
        if len(secrets.asked) > 1:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        secrets.reader.read(LEASE, check)


@pytest.mark.parametrize("broken", ["cut", "no action"])
def test_an_answer_with_secrets_that_is_broken_is_not_shown(cloud, tmp_path, monkeypatch, caplog, broken):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    boot(tmp_path)
    answer = json.dumps(
        {"secrets": {"hub": TOKEN}} if broken == "no action" else {"action": "secrets", "secrets": TOKEN}
    )
    text = answer[:-1] if broken == "cut" else answer
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    cloud.status = lambda body: (head + text).encode()
    api = WorkerApi(metadata.load_identity({}), SECRET)
    with fails("infrastructure", "worker-api answered with") as failure:
        Secrets(api.secrets).read(LEASE, lambda: None)
    assert TOKEN[:20] not in "".join(traceback.format_exception(failure.value)) + caplog.text
