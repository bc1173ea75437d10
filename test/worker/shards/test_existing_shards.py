"""Shards, rejects and a summary that the bucket holds before an extraction begins."""

import hmac
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat

import pytest

from build import BUCKET, SMALL, a_stream, a_work, fails, outputs, run_extract, text_lines
from gleaner_worker.extract import extract as extract_module
from gleaner_worker.extract import upload
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import Failure
from gleaner_worker.shards.existing_shards import ExistingShards
from gleaner_worker.shards.rejects import same_rejects
from waiting import HANG_S

pytestmark = pytest.mark.slow


def test_an_overwritten_stream_fails_its_extraction(storage, extract):
    stream = a_stream(storage, text_lines(10))
    a_stream(storage, text_lines(12))
    with fails("stream", "generation 1001 was overwritten or deleted"):
        extract(stream)


def test_shards_of_other_content_spec_or_model_are_refused_by_name(storage, extract):
    lines = text_lines(40)
    extract(lines, shard_size_gb=SMALL)
    before = outputs(storage)
    lines[1] = json.dumps({"text": "changed"})
    with fails("stream", "tpu_7/shard_0001.safetensors was made with .*stream_crc32c .* .now "):
        extract(lines, shard_size_gb=SMALL)
    name = "activations/my-run/tpu_7/shard_0002.safetensors"
    for key in ("spec_hash", "model_fingerprint", "tokens_sha256", "last_sample"):
        stream = a_stream(storage, text_lines(40))
        kept = storage.metadata(BUCKET, name)[key]
        storage.metadata(BUCKET, name)[key] = "other"
        with pytest.raises(Failure, match=f"shard_0002.safetensors was made with {key} other .now {kept}"):
            extract(stream, shard_size_gb=SMALL)
        storage.metadata(BUCKET, name)[key] = kept
    assert outputs(storage) == before


def plant(storage, name, epoch, lease_key):
    """Stores rubbish with the metadata of a shard, and with the proof of a lease."""
    name = f"activations/my-run/tpu_7/{name}"
    proof = hmac.digest(lease_key.encode(), f"{name}\n{'0' * 64}".encode(), "sha256").hex()
    storage.put(BUCKET, name, b"rubbish", {"epoch": str(epoch), "sha256": "0" * 64, "proof": proof})
    return name


def test_a_shard_of_this_lease_beyond_the_end_is_refused(storage, extract):
    stream = a_stream(storage, text_lines(10))
    plant(storage, "shard_0002.safetensors", 1, "key")
    with pytest.raises(Failure, match="shard_0002.safetensors exists, but the stream ends with shard 1"):
        extract(stream)


@pytest.mark.parametrize("name", ["shard_0002.safetensors", "shard_0001.pkl.gz"])
def test_an_object_of_no_lease_elsewhere_is_left_to_the_control_plane(storage, extract, name):
    plant(storage, name, 1, "other key")
    assert extract(a_stream(storage, text_lines(10))) == "completed"
    assert "shard_0001.safetensors" in outputs(storage)


def test_an_upload_waits_until_an_object_of_no_lease_is_set_aside(storage, extract, monkeypatch):
    monkeypatch.setattr(upload, "RETRY_S", 0.01)
    stream = a_stream(storage, text_lines(10))
    planted = plant(storage, "shard_0001.safetensors", 2, "other key")
    tries = []

    def set_aside(name):
        tries.extend([name] if name == planted else [])
        if len(tries) == 3:
            storage.clear(planted)

    storage.before_create = set_aside
    assert extract(stream) == "completed"
    assert storage.data(BUCKET, planted) != b"rubbish"


def test_an_object_of_no_lease_that_stays_fails_the_stream_by_name(storage, extract, monkeypatch):
    monkeypatch.setattr(upload, "SET_ASIDE_S", 0)
    stream = a_stream(storage, text_lines(10))
    planted = plant(storage, "shard_0001.safetensors", 2, "other key")
    with pytest.raises(Failure, match="exists with content that differs") as failed:
        extract(stream)
    assert failed.value.contradiction["object"] == planted
    assert storage.data(BUCKET, planted) == b"rubbish"


def test_stored_rejects_with_other_content_are_refused(storage, extract):
    stream = a_stream(storage, [*text_lines(10), "junk"])
    storage.put(BUCKET, "activations/my-run/tpu_7/rejects.jsonl", b"{}\n")
    with pytest.raises(Failure, match="tpu_7/rejects.jsonl exists with content that differs"):
        extract(stream)
    assert set(outputs(storage)) == {"rejects.jsonl", "samples.json"}


def changed(storage, name, change):
    """Replaces the content of the object."""
    name = f"activations/my-run/tpu_7/{name}"
    storage.put(BUCKET, name, change(storage.data(BUCKET, name)), storage.metadata(BUCKET, name))


def summary_with(**changes):
    """Makes metadata.json of another attempt: `changes` of the final shard's entry; `top` changes the summary."""

    def change(data):
        summary = json.loads(data) | changes.pop("top", {})
        summary["shards"][-1] |= changes
        return json.dumps(summary).encode()

    return change


def test_rejects_with_other_reasons_of_another_bundle_are_accepted(storage, extract):
    stream = a_stream(storage, [*text_lines(10), "junk"])
    extract(stream)
    shard = "activations/my-run/tpu_7/shard_0001.safetensors"
    changed(storage, "rejects.jsonl", lambda data: json.dumps(json.loads(data) | {"reason": "other"}).encode() + b"\n")
    storage.delete(BUCKET, shard)
    assert extract(stream) == "completed"
    changed(storage, "rejects.jsonl", lambda data: data.replace(b'"line": 11', b'"line": 12'))
    storage.delete(BUCKET, shard)
    with pytest.raises(Failure, match="tpu_7/rejects.jsonl exists with content that differs"):
        extract(stream)


@pytest.mark.parametrize(
    ("mine", "theirs", "is_same"),
    [
        ([b"not JSON\n"], [b"not JSON\n"], True),  # equal bytes are not parsed
        ([b'{"line": 1, "reason": "a"}\n'], [b'{"reason": "b", "line": 1}'], True),
        ([b'{"line": 1, "reason": "a"}\n'], [b'{"line": 2, "reason": "a"}\n'], False),
        ([b'{"line": 1}\n', b'{"line": 2}\n'], [b'{"line": 1}\n'], False),
        ([b'{"line": 1}\n'], [b'{"line": 1}\n', b"\n"], False),
        (repeat(b'{"line": 1}\n'), chain([b'{"line": 2}\n'], repeat(b'{"line": 1}\n')), False),  # without an end
    ],
)
def test_rejects_are_compared_line_by_line(mine, theirs, is_same):
    assert same_rejects(mine, theirs) == is_same


OTHER_BITS = {"crc32c": "AAAAAA==", "size_bytes": 9, "file_size_mb": 0.01}


def test_a_worker_finishes_a_stream_with_a_summary_of_other_hardware(storage, extract, verify):
    """The final shard has other last bits than metadata.json states, and its metadata has a mark for this."""
    spec = {"shard_size_gb": SMALL}
    stream = a_stream(storage, text_lines(40))
    extract(stream, **spec)
    final = max(name for name in outputs(storage) if name.startswith("shard_"))
    name = f"activations/my-run/tpu_7/{final}"
    assert "summary" not in storage.metadata(BUCKET, name)
    summary = json.loads(outputs(storage)["metadata.json"])
    stats = {key: values | {"mean": values["mean"] + 1e-7} for key, values in summary["stats"].items()}
    for changes, mark in (
        ({"top": {"code": "another bundle", "versions": {}, "upload": {}}}, None),
        ({"top": {"code": "another bundle", "stats": stats}, **OTHER_BITS}, "of another attempt"),
    ):
        changed(storage, "metadata.json", summary_with(**changes))
        storage.delete(BUCKET, name)
        before = outputs(storage)
        assert extract(stream, **spec) == "completed"
        assert {key: data for key, data in outputs(storage).items() if key != final} == before
        assert storage.metadata(BUCKET, name).get("summary") == mark
        assert verify(**spec)[0]["ok"]
    metadata = storage.metadata(BUCKET, name)
    storage.put(BUCKET, name, storage.data(BUCKET, name), {k: v for k, v in metadata.items() if k != "summary"})
    _, problems = verify(**spec)
    assert "metadata.json lists other shards, sizes or checksums than are stored" in problems


@pytest.mark.parametrize("changes", [{"rows": 1}, {"top": {"total_samples": 1}}, {"top": {"shards": [OTHER_BITS]}}])
def test_a_summary_of_another_stream_is_refused(storage, extract, changes):
    stream = a_stream(storage, text_lines(40))
    extract(stream, shard_size_gb=SMALL)
    final = max(name for name in outputs(storage) if name.startswith("shard_"))
    changed(storage, "metadata.json", summary_with(**changes))
    storage.delete(BUCKET, f"activations/my-run/tpu_7/{final}")
    with pytest.raises(Failure, match="tpu_7/metadata.json exists with content that differs"):
        extract(stream, shard_size_gb=SMALL)
    assert final not in outputs(storage)


def test_a_second_extraction_of_a_finished_stream_changes_nothing(storage, extract):
    stream = a_stream(storage, text_lines(30))
    extract(stream, shard_size_gb=SMALL)
    before = {name: o["resource"]["generation"] for (_, name), o in storage.objects.items()}
    control = ExtractionState()
    assert extract(stream, control, shard_size_gb=SMALL) == "completed"
    assert {name: o["resource"]["generation"] for (_, name), o in storage.objects.items()} == before
    assert control.progress()["samples_done"] == 30


def test_two_workers_on_one_stream_store_every_sample_once(
    storage, extract, verify, tmp_path, tiny_models, monkeypatch
):
    resource = a_stream(storage, [*text_lines(80), "junk"])

    def work(epoch):
        leased = a_work(resource, epoch=epoch, shard_size_gb=SMALL)
        return run_extract(leased, tiny_models(), str(tmp_path / str(epoch)))

    meeting = threading.Barrier(2, timeout=HANG_S)

    def list_both(*arguments):
        stored = ExistingShards(*arguments)
        meeting.wait()  # neither worker has stored anything yet
        return stored

    created = []
    storage.faults = lambda request: created.append(request) if "ifGenerationMatch=0" in request else None
    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(extract_module, "ExistingShards", list_both)
        assert list(pool.map(work, (1, 2))) == ["completed"] * 2
    report, problems = verify(shard_size_gb=SMALL)
    assert report["ok"], problems
    stored = outputs(storage)
    assert len(created) > len(stored)  # both workers tried
    storage.clear("activations/")
    extract(resource, shard_size_gb=SMALL)
    assert outputs(storage) == stored
