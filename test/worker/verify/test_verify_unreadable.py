"""Corrupted and unreadable objects: verify names each and reads all other objects."""

import pytest

from build import BUCKET, a_stream, bucket
from gleaner_reader.format.limits import MAX_SMALL_OBJECT_BYTES
from gleaner_worker.model.files.model_lock import write_model_lock
from gleaner_worker.storage.objects import ObjectInfo
from gleaner_worker.verify.__main__ import Progress
from gleaner_worker.verify.small_objects import read_object
from gleaner_worker.verify.verify_run import verify_run
from verified_run import PREFIX, rot

pytestmark = pytest.mark.slow


def test_a_corrupted_shard_is_reported_and_the_other_shards_are_read(stored, verify):
    name = PREFIX + "shard_0002.safetensors"
    kept = stored.objects[BUCKET, name]
    kept["data"] = kept["data"][:-5] + bytes([kept["data"][-5] ^ 1]) + kept["data"][-4:]
    report, problems = verify()
    lost = int(kept["resource"]["metadata"]["samples"])
    assert (report["missing"], report["stored_once"], report["different"]) == (lost, 41 - lost, 0)
    assert problems.splitlines()[0] == f"{name} is damaged: its bytes differ from its checksum"
    assert f"datasets/my-run/stream_007.jsonl has {lost} samples missing" in problems
    assert "metadata.json" not in problems
    assert sum("shard_0002" in request and "alt=media" in request for request in stored.requests) <= 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("deleted", "the object does not exist"), (403, "Forbidden: ")],
    ids=["deleted while verify reads", "refused"],
)
def test_a_shard_that_cannot_be_downloaded_is_named_and_the_other_shards_are_read(stored, verify, fault, reason):
    name = PREFIX + "shard_0002.safetensors"
    lost = int(stored.metadata(BUCKET, name)["samples"])

    def fail(request):
        if name not in request or "alt=media" not in request:
            return None
        if fault == "deleted":
            stored.delete(BUCKET, name)
            return None
        return fault

    stored.faults = fail
    report, problems = verify()
    assert (report["missing"], report["stored_once"]) == (lost, 41 - lost)
    assert f"{name} cannot be read: Failed to download gs://{BUCKET}/{name}: {reason}" in problems
    assert "metadata.json" not in problems


def test_a_corrupted_stream_has_the_totals_of_its_shards_and_every_sample_missing(stored, verify):
    right = verify()[0]
    name = "datasets/my-run/stream_007.jsonl"
    rot(stored, name)
    report, problems = verify()
    same = ("samples", "shards", "bytes", "tokens", "rows")
    assert {key: report[key] for key in same} == {key: right[key] for key in same}
    assert (report["ok"], report["missing"], report["stored_once"]) == (False, 42, 0)
    assert problems.splitlines() == [
        f"{name} is damaged: its bytes differ from its checksum",
        f"{name} has 42 samples missing: without the stream they cannot be compared",
    ]


def test_a_stream_that_is_deleted_during_verify_is_named(stored, verify):
    name = "datasets/my-run/stream_007.jsonl"
    stored.faults = lambda request: stored.delete(BUCKET, name) if f"{name}?" in request else None
    report, problems = verify()
    assert (report["samples"], report["missing"]) == (42, 42)
    assert f"{name} cannot be read: Failed to download gs://{BUCKET}/{name}: the object does not exist" in problems


def test_a_corrupted_model_json_is_named_and_the_shards_are_read(stored, verify, tiny_models):
    write_model_lock(bucket(), "my-run", tiny_models().files)
    rot(stored, "activations/my-run/model.json")
    report, problems = verify()
    assert (report["ok"], report["stored_once"], report["rejected"]) == (False, 41, 1)
    assert "activations/my-run/model.json: its bytes differ from its checksum" in problems
    assert len(problems.splitlines()) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["metadata.json", "rejects.jsonl"])
def test_the_shards_are_counted_with_corrupted_rejects_or_summary(stored, verify, name):
    rot(stored, PREFIX + name)
    report, problems = verify()
    assert (report["ok"], report["stored_once"]) == (False, 41)
    assert f"{PREFIX}{name} is damaged: its bytes differ from its checksum" in problems


def test_a_damaged_shard_is_reported_before_later_shards_are_read(stored, tmp_path):
    rot(stored, PREFIX + "shard_0001.safetensors")
    said, told = [], []
    progress = Progress("my-run\x1b[2J", said.append)
    verify_run(bucket(), "my-run", str(tmp_path), lambda value: (told.append(value), progress.update(value)))
    assert said == [f"problem: {PREFIX}shard_0001.safetensors is damaged: its bytes differ from its checksum"]
    at = next(index for index, value in enumerate(told) if "problem" in value)
    assert any("shards_done" in value for value in told[at:])
    progress.update({"problem": "x\x1b[2J\u202e\u2028"})
    assert said[-1] == r"problem: x\x1b[2J\u202e\u2028"


def test_the_other_streams_are_counted_beside_an_unreadable_stream(stored, verify):
    a_stream(stored, ["x"], name="datasets/my-run/stream_008.jsonl.gz")
    stored.put(BUCKET, "datasets/my-run/stream_008.jsonl.gz", b"\x1f\x8b\x08 damaged")
    report, problems = verify()
    assert not report["ok"]
    assert report["stored_once"] == 41
    assert "stream_008.jsonl.gz" in problems


def test_an_object_beside_the_shards_that_is_too_large_is_named_and_not_read(storage):
    problems = []
    info = ObjectInfo(f"{PREFIX}metadata.json", 1, MAX_SMALL_OBJECT_BYTES + 1, "", {})
    assert read_object(bucket(), info, problems) is None
    assert problems == [f"{info.name} has {info.size_bytes} bytes; the limit is {MAX_SMALL_OBJECT_BYTES}"]
