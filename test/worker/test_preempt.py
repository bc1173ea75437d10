"""Ways in which an extraction is cut short: a lost lease, a drain, a machine that goes away with notice."""

import json
import re
import threading
import time

import numpy as np
import pytest
import safetensors.numpy

from build import BUCKET, a_stream, a_work, outputs, run_extract, shard_gb, text_lines
from gleaner_worker import extract as extract_module
from gleaner_worker.control import Control
from gleaner_worker.failures import LeaseLost
from read_shards import load_tensors

pytestmark = pytest.mark.slow

SMALL = shard_gb(400)
PARTIALS = "partials/my-run/tpu_7/"


@pytest.fixture
def clean(storage):
    """Forgets everything but the streams."""
    return lambda: storage.clear("activations/", "partials/")


def test_a_worker_that_lost_its_lease_writes_nothing_more(storage, tmp_path, tiny_models):
    control = Control()
    asked = []

    def lose(what):
        if "/upload/" in what:
            asked.append(what)
            control.request("stop")

    storage.faults = lose
    work = a_work(a_stream(storage, text_lines(200)), shard_size_gb=SMALL)
    with pytest.raises(LeaseLost):
        run_extract(work, tiny_models(), str(tmp_path), control)
    stored = outputs(storage)
    assert "metadata.json" not in stored and len(stored) == len(asked) <= 4  # those that were on their way
    assert storage.names(BUCKET, PARTIALS) == []


def test_told_to_drain_it_ends_after_the_shard_in_hand(storage, tmp_path, tiny_models):
    control = Control()
    storage.faults = lambda what: control.request("drain") if "/upload/" in what else None
    work = a_work(a_stream(storage, text_lines(300)), shard_size_gb=SMALL)
    assert run_extract(work, tiny_models(), str(tmp_path), control) == "drained"
    shards = [name for name in outputs(storage) if name.startswith("shard_")]
    assert "metadata.json" not in outputs(storage)
    assert 1 <= len(shards) <= 8
    assert storage.names(BUCKET, PARTIALS) == []
    storage.faults = lambda what: None
    assert run_extract(work, tiny_models(), str(tmp_path)) == "completed"


def test_told_to_drain_before_it_began_it_computes_nothing(storage, tmp_path, tiny_models):
    control = Control()
    control.request("drain")
    work = a_work(a_stream(storage, text_lines(30)))
    assert run_extract(work, tiny_models(), str(tmp_path), control) == "drained"
    assert outputs(storage) == {}


class Interruption:
    """Asks for a flush when so many batches are in; counts them."""

    def __init__(self, monkeypatch, batches=10**9):
        self.control, self.done, self.shards = Control(), 0, set()
        put_batch = extract_module.put_batch

        def counting(*arguments):
            put_batch(*arguments)
            self.done += 1
            self.shards.add(arguments[0].plan.number)
            if self.done == batches:
                self.control.request("flush")

        monkeypatch.setattr(extract_module, "put_batch", counting)


def batches_of(name):
    shard, first, last = re.fullmatch(r".*/shard_(\d+)\.e\d+\.b(\d+)-(\d+)\.safetensors", name).groups()
    return [(shard, batch) for batch in range(int(first), int(last) + 1)]


SPECS = [
    {},
    {"dtype": "int8", "tokens": "mean", "sites": ["resid_pre", "mlp_out"]},
    {"dtype": "int8", "format": "safetensors.zst", "keep": ["text"]},
    {"dtype": "fp32", "format": "pkl.gz"},
    {"dtype": "fp16", "tokens": "::2"},
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_preempted_shard_goes_on_where_it_was_and_comes_out_the_same(
    storage, tmp_path, tiny_models, monkeypatch, clean, spec
):
    resource = a_stream(storage, text_lines(600))
    model = tiny_models(**spec)
    with monkeypatch.context() as patch:
        calm = Interruption(patch)
        run_extract(a_work(resource, **spec), model, str(tmp_path))
    undisturbed = outputs(storage)
    clean()
    computed, samples = 0, 0
    for epoch in range(1, 20):
        with monkeypatch.context() as patch:
            interruption = Interruption(patch, batches=2)
            outcome = run_extract(a_work(resource, epoch=epoch, **spec), model, str(tmp_path), interruption.control)
        computed += interruption.done
        assert interruption.control.progress()["samples_done"] >= samples  # what was restored counts
        samples = interruption.control.progress()["samples_done"]
        if outcome == "completed":
            break
        assert outcome == "preempted"
        assert any(f".e{epoch}." in name for name in storage.names(BUCKET, f"{PARTIALS}shard_0001."))
    assert epoch > 2
    assert outputs(storage) == undisturbed
    assert computed == calm.done  # no batch was computed twice
    saved = [batch for name in storage.names(BUCKET, PARTIALS) for batch in batches_of(name)]
    assert len(saved) == len(set(saved)) > 0  # nor saved twice


def test_a_preemption_loses_no_shard_that_is_computed_but_not_encoded(
    storage, tmp_path, tiny_models, monkeypatch, clean
):
    """A slow codec would take longer than the notice: its shards are kept as they are."""
    resource = a_stream(storage, text_lines(300))
    run_extract(a_work(resource, shard_size_gb=SMALL), tiny_models(), str(tmp_path))
    undisturbed = outputs(storage)
    clean()
    control, encode, encoded = Control(), extract_module.encode_shard, []

    def slow(*arguments):
        encoded.append(1)
        until(lambda: max(interruption.shards) > 1)  # there is one behind it
        control.request("flush")
        until(lambda: storage.names(BUCKET, f"{PARTIALS}shard_0001."))
        return encode(*arguments)

    with monkeypatch.context() as patch:
        interruption = Interruption(patch)
        patch.setattr(extract_module, "encode_shard", slow)
        assert run_extract(a_work(resource, shard_size_gb=SMALL), tiny_models(), str(tmp_path), control) == "preempted"
    numbers = {name.removeprefix(PARTIALS)[:10] for name in storage.names(BUCKET, PARTIALS)}
    assert "shard_0001" in numbers and len(numbers) > 1
    assert len(encoded) == 1  # the one that it was at
    with monkeypatch.context() as patch:
        second = Interruption(patch)
        assert run_extract(a_work(resource, epoch=2, shard_size_gb=SMALL), tiny_models(), str(tmp_path)) == "completed"
    assert outputs(storage) == undisturbed
    with monkeypatch.context() as patch:
        clean()
        calm = Interruption(patch)
        run_extract(a_work(resource, shard_size_gb=SMALL), tiny_models(), str(tmp_path))
    assert interruption.done + second.done == calm.done


def test_partials_are_stored_although_the_uploads_of_shards_hang(storage, tmp_path, tiny_models, monkeypatch):
    """The uploads are many times slower than the device; what is told last must not wait for what was told first."""
    control, held, encode, encoded = Control(), threading.Event(), extract_module.encode_shard, []
    resource = a_stream(storage, text_lines(300))
    storage.before_create = lambda name: held.wait(60) if name.startswith("activations/") else None

    def encode_four(*arguments):
        """What is in the way of the uploads stays as it was computed."""
        encoded.append(1)
        if len(encoded) > 4:
            held.wait(60)
        return encode(*arguments)

    monkeypatch.setattr(extract_module, "encode_shard", encode_four)
    result = []
    thread = threading.Thread(
        target=lambda: result.append(
            run_extract(a_work(resource, shard_size_gb=SMALL), tiny_models(), str(tmp_path), control)
        )
    )
    thread.start()
    until(lambda: control.phase == "uploading")  # no memory for one more shard
    control.request("flush")
    until(lambda: storage.names(BUCKET, PARTIALS))
    assert outputs(storage) == {}
    held.set()
    thread.join(60)
    assert result == ["preempted"]
    storage.before_create = lambda name: None
    assert run_extract(a_work(resource, epoch=2, shard_size_gb=SMALL), tiny_models(), str(tmp_path)) == "completed"


def until(is_true, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def spoil(storage, name, how):
    data, metadata = storage.data(BUCKET, name), storage.metadata(BUCKET, name)
    match how:
        case "cut":
            storage.put(BUCKET, name, data[:-10], metadata)
        case "empty":
            storage.put(BUCKET, name, b"", metadata)
        case "huge":
            storage.put(BUCKET, name, data + bytes(2 << 20), metadata)
        case "other rows" | "no scale" | "other dtype":
            tensors = load_tensors(data)
            if how == "other rows":
                tensors["rows.resid_post"] = tensors["rows.resid_post"][:, :-1]
            elif how == "no scale":
                del tensors["scale.resid_post"]
            else:
                tensors["rows.resid_post"] = tensors["rows.resid_post"].astype(np.uint8)
            storage.put(BUCKET, name, safetensors.numpy.save(tensors), metadata)
        case "other batches":
            metadata["last_batch"] = str(int(metadata["last_batch"]) - 1)
        case "impossible batches":
            metadata["last_batch"] = "999999999"
        case "no number":
            metadata["first_batch"] = "²"
        case key:
            metadata[key] = "other"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "damage",
    [
        "cut",
        "empty",
        "huge",
        "other rows",
        "no scale",
        "other dtype",
        "other batches",
        "impossible batches",
        "no number",
        "tokens_sha256",
        "rows",
        "model_fingerprint",
    ],
)
def test_a_partial_that_does_not_fit_is_passed_over(storage, tmp_path, tiny_models, monkeypatch, clean, damage):
    resource = a_stream(storage, text_lines(600))
    spec = {"dtype": "int8"}
    with monkeypatch.context() as patch:
        calm = Interruption(patch)
        run_extract(a_work(resource, **spec), tiny_models(**spec), str(tmp_path))
    undisturbed = outputs(storage)
    clean()
    with monkeypatch.context() as patch:
        interruption = Interruption(patch, batches=2)
        work = a_work(resource, **spec)
        assert run_extract(work, tiny_models(**spec), str(tmp_path), interruption.control) == "preempted"
    for name in storage.names(BUCKET, PARTIALS):
        spoil(storage, name, damage)
    with monkeypatch.context() as patch:
        second = Interruption(patch)
        assert run_extract(a_work(resource, epoch=2, **spec), tiny_models(**spec), str(tmp_path)) == "completed"
    assert outputs(storage) == undisturbed
    assert second.done == calm.done


@pytest.mark.long
def test_partials_of_several_workers_are_put_together(storage, tmp_path, tiny_models, monkeypatch, clean):
    """One of two was lost on its way: what is there is used, and only the rest computed again."""
    monkeypatch.setattr("gleaner_worker.shards.partial._PART_BYTES", 1)
    resource = a_stream(storage, text_lines(600))
    with monkeypatch.context() as patch:
        calm = Interruption(patch)
        run_extract(a_work(resource), tiny_models(), str(tmp_path))
    undisturbed = outputs(storage)
    clean()
    with monkeypatch.context() as patch:
        first = Interruption(patch, batches=3)
        run_extract(a_work(resource), tiny_models(), str(tmp_path), first.control)
    names = storage.names(BUCKET, PARTIALS)
    assert len(names) == first.done  # a batch each
    storage.delete(BUCKET, names[1])
    with monkeypatch.context() as patch:
        second = Interruption(patch)
        run_extract(a_work(resource, epoch=2), tiny_models(), str(tmp_path))
    assert second.done == calm.done - first.done + 1
    assert outputs(storage) == undisturbed
    assert json.loads(undisturbed["metadata.json"])["total_samples"] == 600
