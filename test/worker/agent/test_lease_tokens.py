"""Tokens of a lease: when the client asks for one, keeps it and renews it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from build import BUCKET, fails
from gleaner_worker.agent import metadata
from gleaner_worker.agent.api import WorkerApi
from gleaner_worker.failures import LeaseLost, Unreachable
from gleaner_worker.storage import retry
from gleaner_worker.storage.lease_credentials import LeaseCredentials
from gleaner_worker.storage.objects import Bucket, make_client
from gleaner_worker.storage.upload_content import BytesContent


class Broker:
    """worker-api: gives numbered tokens that end in `left_s`, or raises `error`."""

    def __init__(self):
        self.given = 0
        self.left_s = 3600.0
        self.error: Exception | None = None
        self.bucket = Bucket(make_client("p", LeaseCredentials(self.answer)), BUCKET)

    def answer(self):
        if self.error:
            raise self.error
        self.given += 1
        end = (datetime.now(UTC) + timedelta(seconds=self.left_s)).isoformat().replace("+00:00", "Z")
        return {"action": "token", "access_token": f"token-{self.given}", "expires_at": end}


@pytest.fixture
def broker(storage):
    storage.put(BUCKET, "a", b"content")
    return Broker()


def refuse(storage, status, *tokens):
    """The bucket answers `status` to requests with these tokens."""
    refused = {f"Bearer {token}" for token in tokens}
    storage.refuses = lambda headers: status if headers.get("Authorization") in refused else None


def test_a_token_serves_all_requests_of_its_lease_and_is_renewed_before_its_end(broker):
    for _ in range(3):
        assert broker.bucket.read("a") == b"content"
    assert broker.given == 1
    broker.left_s = 60
    broker.bucket.client._credentials.forget()
    for _ in range(2):
        assert broker.bucket.read("a") == b"content"
    assert broker.given == 3


def test_threads_that_need_a_token_share_one_request(broker):
    together = threading.Barrier(8)

    def read(_):
        together.wait()
        return broker.bucket.read("a")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [b"content"] * 8
    assert broker.given == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_renewed_once(broker, storage, status):
    refuse(storage, status, "token-1")
    assert broker.bucket.read("a") == b"content"
    assert broker.given == 2
    broker.bucket.client._credentials.forget()
    refuse(storage, 403, "token-3", "token-4", "token-5")
    with fails("infrastructure", "Failed to read gs://a-bucket/a: .*grant worker-api's service account"):
        broker.bucket.read("a")
    assert broker.given == 4


def test_a_create_that_exists_is_no_refusal(broker, storage):
    storage.faults = lambda request: 403 if "/upload/" in request else None
    assert broker.bucket.create("a", BytesContent(b"content"), {}, "text/plain").size_bytes == 7
    assert broker.given == 1


@pytest.mark.parametrize("error", [OSError("no route"), None], ids=["no answer", "no token"])
def test_a_token_is_kept_until_its_end_while_worker_api_gives_none(broker, monkeypatch, error):
    broker.left_s = 100
    assert broker.bucket.read("a") == b"content"
    credentials = broker.bucket.client._credentials
    monkeypatch.setattr(broker, "error", error)
    if error is None:
        credentials._ask = lambda: {"action": "none", "reason": "no document knows this incarnation"}
    assert broker.bucket.read("a") == b"content"
    credentials.forget()
    monkeypatch.setattr(retry, "GIVE_UP_AFTER_S", 0.1)
    with pytest.raises(Unreachable, match=r"worker-api gives no token: no (route|document)"):
        broker.bucket.read("a")


def test_a_lost_lease_ends_the_request(broker):
    broker.error = LeaseLost("tpu-0 does not hold this lease any more")
    with pytest.raises(LeaseLost):
        broker.bucket.read("a")


def test_an_answer_that_breaks_off_shows_no_token(cloud, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    api = WorkerApi(metadata.load_identity({}), "5e" * 32)
    text = b'{"action": "token", "access_token": "ya29.a-token'
    cloud.status = lambda body: b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + text
    with pytest.raises(OSError, match="not JSON$") as caught:
        api.token(None)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
