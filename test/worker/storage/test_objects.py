import base64
import hashlib
import http.client
import io
import random
import re
from dataclasses import replace
from datetime import UTC, datetime

import google_crc32c
import numpy as np
import pytest
import urllib3.exceptions
from google.cloud.storage import Blob

from build import BUCKET, a_stream, a_work, bucket, fails
from forged import forged
from gleaner_worker.failures import Damaged, Failure, LeaseLost
from gleaner_worker.shards.shard_bytes import ShardBytes
from gleaner_worker.storage import retry
from gleaner_worker.storage.objects import Contradicts
from gleaner_worker.storage.upload_content import CheckedContent, FileContent, Views


@pytest.fixture
def short_deadline(monkeypatch):
    monkeypatch.setattr(retry, "GIVE_UP_AFTER_S", 0.3)


@pytest.fixture
def small_chunks(monkeypatch):
    """The client sends 10 MiB in each request of a large upload, in place of 100 MiB."""
    monkeypatch.setattr("google.cloud.storage.blob._DEFAULT_CHUNKSIZE", 10 << 20)


class Content(io.BytesIO):
    """Bytes in memory, with the checksum that they state."""

    def __init__(self, data=b"content", crc32c=None):
        super().__init__(data)
        self.size = len(data)
        self.crc32c = crc32c or base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


@pytest.mark.parametrize("size", [0, 7, 9 * 1024 * 1024])
def test_an_object_is_created_with_its_metadata_and_read_again(storage, tmp_path, size):
    content = Content(b"x" * size)
    assert bucket().create("a/b.bin", content, {"k": "v"}, "text/plain") is None
    assert (storage.data(BUCKET, "a/b.bin"), storage.metadata(BUCKET, "a/b.bin")) == (b"x" * size, {"k": "v"})
    info = bucket().head("a/b.bin")
    assert (info.size_bytes, info.metadata, info.crc32c) == (size, {"k": "v"}, content.crc32c)
    bucket().download("a/b.bin", str(tmp_path / "back"), info.generation)
    assert (tmp_path / "back").read_bytes() == b"x" * size
    assert [found.name for found in bucket().list("a/")] == ["a/b.bin"]
    assert bucket().list("b/") == []
    assert bucket().head("absent") is None


@pytest.mark.parametrize("size", [7, 9 * 1024 * 1024])
def test_an_object_of_a_run_that_expires_has_its_custom_time(storage, size):
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    work = replace(a_work(a_stream(storage, ["{}"])), expire_days=7)
    assert replace(work, expire_days=None).custom_time(moment) is None
    bucket().create("a", Content(b"x" * size), {}, "text/plain", work.custom_time(moment))
    assert storage.objects[BUCKET, "a"]["resource"]["customTime"] == "2026-01-08T03:04:05.000000Z"


def test_a_file_is_uploaded_from_the_disk(storage, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"y" * 9_000_000)
    with open(path, "rb") as file:
        assert bucket().create("a", FileContent(file), {}, "text/plain") is None
    assert storage.data(BUCKET, "a") == b"y" * 9_000_000


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (3, 9), (0, 10), (9, 10), (5, 99)])
def test_a_byte_range_of_an_object_is_read(storage, begin, end):
    generation = int(storage.put(BUCKET, "a", b"0123456789")["generation"])
    assert bucket().read_range("a", generation, begin, end) == b"0123456789"[begin:end]
    storage.put(BUCKET, "a", b"another")
    with pytest.raises(FileNotFoundError):
        bucket().read_range("a", generation, begin, end)


def read_into(name, generation, begin, end, **settings):
    target = bytearray(end - begin)
    bucket(**settings).read_into(name, generation, begin, memoryview(target))
    return bytes(target)


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (3, 2_900_001), (0, 3_000_000), (2_999_999, 3_000_000)])
def test_memory_is_filled_with_a_byte_range_of_one_generation(storage, begin, end):
    data = random.Random(0).randbytes(3_000_000)
    generation = int(storage.put(BUCKET, "a folder/ä", data)["generation"])
    assert read_into("a folder/ä", generation, begin, end) == data[begin:end]
    storage.put(BUCKET, "a folder/ä", data[::-1])
    with pytest.raises(FileNotFoundError, match="gs://a-bucket/a folder/ä"):
        read_into("a folder/ä", generation, begin, end)


def test_a_lost_lease_ends_a_read_between_its_parts(storage):
    generation, calls = int(storage.put(BUCKET, "a", bytes(9_000_000))["generation"]), []

    def check():
        calls.append(0)
        if len(calls) == 3:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        read_into("a", generation, 0, 9_000_000, check=check)


@pytest.mark.usefixtures("short_deadline")
def test_a_range_beyond_the_object_is_an_error(storage):
    generation = int(storage.put(BUCKET, "a", b"0123456789")["generation"])
    for begin, end in ((5, 11), (10, 11)):
        with pytest.raises(Failure, match="Failed to read gs://a-bucket/a: "):
            read_into("a", generation, begin, end)


@pytest.mark.usefixtures("short_deadline")
@pytest.mark.parametrize("size", [7, 9 * 1024 * 1024])
def test_an_object_that_is_damaged_during_its_upload_is_not_stored(storage, size):
    content = Content(b"x" * size, crc32c=Content(b"y" * size).crc32c)
    with fails("infrastructure", "Failed to create gs://a-bucket/a: .*damaged in transit"):
        bucket().create("a", content, {}, "text/plain")
    assert not storage.objects


def test_a_large_shard_is_sent_without_a_copy_and_again_after_a_failure(storage, small_chunks):
    random = np.random.default_rng(0)
    buffers = [random.integers(0, 256, size, dtype=np.uint8) for size in (100, 6 << 20, 0, 5 << 20, 7)]
    sent: list[int] = []
    body = CheckedContent(ShardBytes(buffers), lambda: None, sent.append).read(10 << 20)
    assert isinstance(body, Views)
    pieces = list(body)
    assert sent == [len(piece) for piece in pieces] == [100, 4 << 20, 2 << 20, (4 << 20) - 100]
    for piece, number in zip(pieces, [0, 1, 1, 3], strict=True):
        assert np.shares_memory(np.frombuffer(piece, np.uint8), buffers[number])
    left = [None, 503, None, None, 503, None, None, None]  # begin, send; begin, send, send; begin, send, send
    storage.faults = lambda request: left.pop(0) if "/upload/" in request else None
    assert bucket().create("a", ShardBytes(buffers), {}, "text/plain") is None
    assert left == []
    assert storage.data(BUCKET, "a") == b"".join(buffers)


def test_an_existing_object_is_never_overwritten(storage, tmp_path):
    storage.put(BUCKET, "a", b"content", {"k": "1"})
    assert bucket().create("a", Content(), {"k": "2"}, "text/plain").metadata == {"k": "1"}
    storage.put(BUCKET, "a", b"another")  # of the same size
    with pytest.raises(Contradicts, match=f"7 bytes of crc32c .* 7 bytes of crc32c {re.escape(Content().crc32c)}"):
        bucket().create("a", Content(), {"k": "2"}, "text/plain")
    assert storage.data(BUCKET, "a") == b"another"
    storage.put(BUCKET, "a", forged(b"content"), {"sha256": hashlib.sha256(b"content").hexdigest()})
    assert bucket().head("a").crc32c == Content().crc32c
    with pytest.raises(Contradicts, match=f"exists with bytes of sha256 .* {hashlib.sha256(b'content').hexdigest()}"):
        bucket().create("a", Content(), {"k": "2"}, "text/plain")


@pytest.mark.sample(2)
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_call_succeeds_after_a_short_outage_of_the_service(storage, tmp_path, status):
    answers = [status, status]
    storage.faults = lambda request: answers.pop() if answers and "/upload/" in request else None
    assert bucket().create("a", Content(), {}, "text/plain") is None
    assert not answers
    assert storage.data(BUCKET, "a") == b"content"


def test_a_long_outage_of_the_service_is_a_failure_of_infrastructure(storage, short_deadline):
    storage.faults = lambda request: 503
    with fails("infrastructure", "Failed to create gs://a-bucket/a: .*503.*gave up after"):
        bucket().create("a", Content(), {}, "text/plain")
    assert not storage.objects


def test_a_replaced_generation_is_not_found(storage, tmp_path):
    old = storage.put(BUCKET, "a", b"old")
    storage.put(BUCKET, "a", b"new")
    with pytest.raises(FileNotFoundError, match="gs://a-bucket/a"):
        bucket().download("a", str(tmp_path / "x"), int(old["generation"]))


def test_a_call_after_a_lost_lease_sends_no_request(storage, tmp_path):
    def lost():
        raise LeaseLost

    with pytest.raises(LeaseLost):
        bucket(lost).create("a", Content(), {}, "text/plain")
    assert not storage.requests


def test_a_lost_lease_ends_a_wait_for_a_retry_and_a_running_upload(storage, small_chunks):
    lost = []

    def check():
        if lost:
            raise LeaseLost

    storage.faults = lambda request: (lost.append(1) or 503) if "/upload/" in request else None
    with pytest.raises(LeaseLost):
        bucket(check).create("a", Content(), {}, "text/plain")
    assert sum("/upload/" in request for request in storage.requests) == 1

    class Long(Content):
        def read(self, size=-1):
            lost.append(1)
            return super().read(size)

    lost.clear()
    storage.faults = lambda request: None
    with pytest.raises(LeaseLost):
        bucket(check).create("a", Long(b"x" * (25 << 20)), {}, "text/plain")
    assert len(lost) == 1
    assert not storage.objects


def test_data_that_is_damaged_during_a_download_is_fetched_again(storage, tmp_path):
    resource = storage.put(BUCKET, "a", b"right")
    good = storage.objects[BUCKET, "a"]["data"]
    storage.objects[BUCKET, "a"]["data"] = b"wrong"

    def heal(_request):
        if sum("alt=media" in request for request in storage.requests) > 1:
            storage.objects[BUCKET, "a"]["data"] = good

    storage.faults = heal
    bucket().download("a", str(tmp_path / "x"), int(resource["generation"]))
    assert (tmp_path / "x").read_bytes() == b"right"


def test_data_that_stays_damaged_is_reported_after_three_downloads(storage, tmp_path):
    storage.put(BUCKET, "a", b"right")
    storage.objects[BUCKET, "a"]["data"] = b"wrong"
    for fetch in (lambda: bucket().download("a", str(tmp_path / "x")), lambda: bucket().read("a")):
        storage.requests.clear()
        with pytest.raises(Damaged, match="gs://a-bucket/a: its bytes differ from its checksum, 3 times;") as failure:
            fetch()
        assert failure.value.kind == "infrastructure"
        assert len(storage.requests) == 3


def test_a_broken_answer_is_fetched_again_from_its_beginning(storage, tmp_path):
    data = bytes(range(250)) * 4
    generation = int(storage.put(BUCKET, "a", data)["generation"])
    faults = []
    storage.faults = lambda request: faults.pop() if faults else None

    def after_half(call):
        faults.append("half")
        asked = len(storage.requests)
        answer = call()
        assert len(storage.requests) - asked == 2
        return answer

    after_half(lambda: bucket().download("a", str(tmp_path / "x"), generation))
    assert (tmp_path / "x").read_bytes() == data
    assert after_half(lambda: bucket().read("a")) == data
    assert after_half(lambda: bucket().read_range("a", generation, 100, 900)) == data[100:900]
    assert after_half(lambda: read_into("a", generation, 100, 900)) == data[100:900]
    assert after_half(lambda: bucket().head("a")).size_bytes == 1000
    assert [info.name for info in after_half(lambda: bucket().list(""))] == ["a"]


@pytest.mark.parametrize(
    "error",
    [
        urllib3.exceptions.ReadTimeoutError(None, "/", "Read timed out."),
        urllib3.exceptions.SSLError("record layer failure"),
        urllib3.exceptions.EmptyPoolError(None, "no connections left"),
        http.client.BadStatusLine("nonsense"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_call_succeeds_after_a_short_outage_of_the_network(storage, monkeypatch, error):
    storage.put(BUCKET, "a", b"data")
    errors, download = [error], Blob.download_as_bytes

    def break_once(blob, **options):
        if errors:
            raise errors.pop()
        return download(blob, **options)

    monkeypatch.setattr(Blob, "download_as_bytes", break_once)
    assert bucket().read("a") == b"data"


def test_a_service_that_truncates_every_answer_is_a_failure_of_infrastructure(storage, tmp_path, short_deadline):
    storage.put(BUCKET, "a", b"data")
    storage.faults = lambda request: "half"
    with fails("infrastructure", "Failed to download gs://a-bucket/a: ProtocolError: .*gave up after"):
        bucket().download("a", str(tmp_path / "x"))
