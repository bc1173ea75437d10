"""Extractions that end early: by a lost lease, by a drain, or by a preemption with notice."""

import threading

import pytest

from build import BUCKET, SMALL, a_stream, outputs, text_lines
from gleaner_worker.extract import extract as extract_module
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import LeaseLost
from interruption import PARTIALS, Interruption
from waiting import HANG_S, until

pytestmark = pytest.mark.slow


def test_a_worker_that_lost_its_lease_starts_no_upload(storage, extract):
    control = ExtractionState()
    asked = []

    def lose(request):
        if "/upload/" in request:
            asked.append(request)
            control.request("stop")

    storage.faults = lose
    with pytest.raises(LeaseLost):
        extract(text_lines(200), control, shard_size_gb=SMALL)
    stored = outputs(storage)
    assert "metadata.json" not in stored and len(stored) == len(asked) <= 4  # uploads in progress
    assert storage.names(BUCKET, PARTIALS) == []


def test_a_drained_extraction_ends_after_the_current_windows(storage, extract):
    control = ExtractionState()
    storage.faults = lambda request: control.request("drain") if "/upload/" in request else None
    stream = a_stream(storage, text_lines(300))
    assert extract(stream, control, shard_size_gb=SMALL) == "drained"
    shards = [name for name in outputs(storage) if name.startswith("shard_")]
    assert "metadata.json" not in outputs(storage)
    continued = {name.removeprefix(PARTIALS)[:10] for name in storage.names(BUCKET, PARTIALS)}
    assert len(continued) <= 1  # the shard that continues in the next window
    storage.faults = lambda request: None
    assert extract(stream, shard_size_gb=SMALL) == "completed"
    total = sum(name.startswith("shard_") for name in outputs(storage))
    assert 1 <= len(shards) < total / 2


def test_an_extraction_drained_before_its_start_computes_nothing(storage, extract):
    control = ExtractionState()
    control.request("drain")
    assert extract(text_lines(30), control) == "drained"
    assert outputs(storage) == {}


def test_a_preempted_worker_saves_the_shards_that_are_computed_but_not_encoded(
    storage, extract, interrupted, monkeypatch, clean
):
    """A slow codec takes longer than the notice, so its shards are saved unencoded."""
    resource = a_stream(storage, text_lines(150))
    extract(resource, shard_size_gb=SMALL)
    expected = outputs(storage)
    clean()
    control, encode, encoded = ExtractionState(), extract_module.encode_shard, []

    def slow(*arguments):
        encoded.append(1)
        until(lambda: max(interruption.shards) > 1)  # a second shard waits behind it
        control.request("flush")
        until(lambda: storage.names(BUCKET, f"{PARTIALS}shard_0001."))
        return encode(*arguments)

    with monkeypatch.context() as patch:
        interruption = Interruption(patch)
        patch.setattr(extract_module, "encode_shard", slow)
        assert extract(resource, control, shard_size_gb=SMALL) == "preempted"
    numbers = {name.removeprefix(PARTIALS)[:10] for name in storage.names(BUCKET, PARTIALS)}
    assert "shard_0001" in numbers and len(numbers) > 1
    assert len(encoded) == 1  # the shard of the encoder
    second = interrupted(resource, epoch=2, shard_size_gb=SMALL)
    assert second.outcome == "completed" and outputs(storage) == expected
    clean()
    uninterrupted = interrupted(resource, shard_size_gb=SMALL)
    assert interruption.done + second.done == uninterrupted.done


def test_partials_are_stored_while_uploads_of_shards_hang(storage, extract, monkeypatch):
    """Uploads are far slower than the device; partials must not wait behind the uploads of shards."""
    control, held, encode, encoded = ExtractionState(), threading.Event(), extract_module.encode_shard, []
    resource = a_stream(storage, text_lines(150))
    storage.before_create = lambda name: held.wait(HANG_S) if name.startswith("activations/") else None

    def encode_four(*arguments):
        """Encodes four shards, and holds all others."""
        encoded.append(1)
        if len(encoded) > 4:
            held.wait(HANG_S)
        return encode(*arguments)

    monkeypatch.setattr(extract_module, "encode_shard", encode_four)
    result = []
    thread = threading.Thread(target=lambda: result.append(extract(resource, control, shard_size_gb=SMALL)))
    thread.start()
    until(lambda: control.phase == "uploading")  # memory is full
    control.request("flush")
    until(lambda: storage.names(BUCKET, PARTIALS))
    assert outputs(storage) == {}
    held.set()
    thread.join()
    assert result == ["preempted"]
    storage.before_create = lambda name: None
    assert extract(resource, epoch=2, shard_size_gb=SMALL) == "completed"
