import pytest

from build import BUCKET, bucket
from gleaner_worker import objects
from gleaner_worker.failures import Failure, LeaseLost


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(objects, "GIVE_UP_AFTER_S", 1.5)


def a_file(tmp_path, data=b"content"):
    path = tmp_path / "file"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("size", [0, 7, 9 * 1024 * 1024])
def test_an_object_is_created_with_its_metadata_and_comes_back(storage, tmp_path, size):
    path = a_file(tmp_path, b"x" * size)
    assert bucket().create("a/b.bin", path, {"k": "v"}, "text/plain") is None
    assert (storage.data(BUCKET, "a/b.bin"), storage.metadata(BUCKET, "a/b.bin")) == (b"x" * size, {"k": "v"})
    info = bucket().head("a/b.bin")
    assert (info.size_bytes, info.metadata, info.crc32c) == (size, {"k": "v"}, objects.file_crc32c(path))
    bucket().download("a/b.bin", str(tmp_path / "back"), info.generation)
    assert (tmp_path / "back").read_bytes() == b"x" * size
    assert [found.name for found in bucket().list("a/")] == ["a/b.bin"]
    assert bucket().list("b/") == []
    assert bucket().head("absent") is None


def test_what_is_there_is_never_overwritten(storage, tmp_path):
    storage.put(BUCKET, "a", b"first", {"k": "1"})
    found = bucket().create("a", a_file(tmp_path), {"k": "2"}, "text/plain")
    assert found.metadata == {"k": "1"}
    assert storage.data(BUCKET, "a") == b"first"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_service_that_is_away_for_a_moment_is_waited_for(storage, tmp_path, status):
    answers = [status, status]
    storage.faults = lambda what: answers.pop() if answers and "/upload/" in what else None
    assert bucket().create("a", a_file(tmp_path), {}, "text/plain") is None
    assert not answers
    assert storage.data(BUCKET, "a") == b"content"


def test_a_service_that_stays_away_is_a_failure_of_infrastructure(storage, tmp_path):
    storage.faults = lambda what: 503
    with pytest.raises(Failure, match="Failed to create gs://a-bucket/a: .*503.*gave up after") as failure:
        bucket().create("a", a_file(tmp_path), {}, "text/plain")
    assert failure.value.kind == "infrastructure"
    assert not storage.objects


def test_a_right_that_is_missing_is_told_at_once(storage, tmp_path):
    storage.faults = lambda what: 403
    with pytest.raises(Failure, match="Failed to create .*403.*check the rights"):
        bucket().create("a", a_file(tmp_path), {}, "text/plain")
    assert sum("/upload/" in request for request in storage.requests) == 1


def test_an_upload_whose_answer_is_lost_finds_itself(storage, tmp_path):
    answers = [("after", 503)]
    storage.faults = lambda what: answers.pop() if answers and "/upload/" in what else None
    found = bucket().create("a", a_file(tmp_path), {"k": "v"}, "text/plain")
    assert found.metadata == {"k": "v"}
    assert storage.data(BUCKET, "a") == b"content"


def test_a_generation_that_is_gone_is_not_there(storage, tmp_path):
    old = storage.put(BUCKET, "a", b"old")
    storage.put(BUCKET, "a", b"new")
    with pytest.raises(FileNotFoundError, match="gs://a-bucket/a"):
        bucket().download("a", str(tmp_path / "x"), int(old["generation"]))


def test_nothing_is_tried_after_the_lease_is_lost(storage, tmp_path):
    def lost():
        raise LeaseLost

    with pytest.raises(LeaseLost):
        bucket(lost).create("a", a_file(tmp_path), {}, "text/plain")
    assert not storage.requests


def test_data_that_is_damaged_on_the_way_is_fetched_again(storage, tmp_path):
    resource = storage.put(BUCKET, "a", b"right")
    good = storage.objects[BUCKET, "a"]["data"]
    storage.objects[BUCKET, "a"]["data"] = b"wrong"

    def heal(what):
        if sum("alt=media" in request for request in storage.requests) > 1:
            storage.objects[BUCKET, "a"]["data"] = good

    storage.faults = heal
    bucket().download("a", str(tmp_path / "x"), int(resource["generation"]))
    assert (tmp_path / "x").read_bytes() == b"right"
