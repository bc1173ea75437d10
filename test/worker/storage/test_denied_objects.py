"""Permanent errors of Cloud Storage: missing rights, refused tokens, a missing bucket."""

import pytest

from build import BUCKET, bucket, fails
from gleaner_worker.failures import Failure
from gleaner_worker.storage.upload_content import BytesContent


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "HTTPStatus.OK: 200>\\)$"),
        (401, "check that the worker's service account exists and that the node runs as this account$"),
        (403, "; grant the worker's service account this permission on a-bucket$"),
    ],
)
def test_a_permanent_error_is_reported_at_once_with_advice(storage, status, advice):
    storage.faults = lambda request: status
    with fails("infrastructure", f"Failed to create gs://a-bucket/a: .*{advice}"):
        bucket().create("a", BytesContent(b"content"), {}, "text/plain")
    assert sum("/upload/" in request for request in storage.requests) == 1


@pytest.mark.parametrize("size", [7, 9 * 1024 * 1024])
def test_a_denied_create_finds_the_existing_object(storage, size):
    """An account that may not delete gets 403 for the repeated create, after the answer of the first create is lost."""
    storage.put(BUCKET, "a", b"x" * size, {"k": "1"})
    storage.faults = lambda request: 403 if "/upload/" in request else None
    found = bucket().create("a", BytesContent(b"x" * size), {"k": "2"}, "text/plain")
    assert found.metadata == {"k": "1"}


def test_a_denied_create_of_an_absent_object_is_reported(storage):
    storage.faults = lambda request: 403 if "/upload/" in request else None
    with pytest.raises(Failure, match="Failed to create gs://a-bucket/a: Forbidden: .*; grant the worker's"):
        bucket().create("a", BytesContent(b"content"), {}, "text/plain")


def test_a_missing_bucket_is_reported_with_advice(storage, tmp_path, monkeypatch):
    message = "The specified bucket does not exist."
    monkeypatch.setattr(storage, "route", lambda *_: (404, {"error": {"code": 404, "message": message}}, {}))
    with pytest.raises(Failure, match="Failed to download gs://a-bucket/a: create the bucket a-bucket$"):
        bucket().download("a", str(tmp_path / "x"))
