"""Extraction on several devices: busy across shards, with the bytes of a single device."""

import json
import os
import subprocess
import sys

import pytest

from build import BUCKET, a_stream, a_work, a_work_answer, outputs, run_extract, shard_gb, text_lines
from environment import HERE
from gleaner_worker.control import Control
from gleaner_worker.model.model import Model
from test_preempt import Interruption

pytestmark = pytest.mark.slow

SMALL = {"shard_size_gb": shard_gb(400), "max_seq_length": 64}
DEVICES = 4


class Together:
    """A single device in the place of several: it computes their batches in turn."""

    def __init__(self, pending):
        self._pending = pending

    def collect(self):
        return [host for each in self._pending for host in each.collect()]


@pytest.fixture
def groups(monkeypatch):
    """[(batches, height, width)] of every group of batches, on DEVICES devices."""
    started, start = [], Model.start

    def start_each(model, batches, height, width):
        assert 1 <= len(batches) <= DEVICES
        started.append((len(batches), height, width))
        with monkeypatch.context() as one:
            one.setattr(Model, "devices", property(lambda _: 1))
            return Together([start(model, [batch], height, width) for batch in batches])

    monkeypatch.setattr(Model, "start", start_each)
    monkeypatch.setattr(Model, "devices", property(lambda _: DEVICES))
    return started


@pytest.fixture
def calm(storage, tmp_path, tiny_models):
    """(stream, the outputs of a single device)."""
    resource = a_stream(storage, text_lines(300))
    run_extract(a_work(resource, **SMALL), tiny_models(**SMALL), str(tmp_path))
    stored = outputs(storage)
    storage.clear("activations/", "partials/")
    return resource, stored


def batches_of(stored):
    """Samples of the tiny stream have fewer than 64 tokens, so a shard has at most two batches, of different widths."""
    return 2 * len(json.loads(stored["metadata.json"])["shards"])


def test_batches_of_several_shards_are_computed_together(storage, tmp_path, tiny_models, calm, groups):
    resource, stored = calm
    assert run_extract(a_work(resource, **SMALL), tiny_models(**SMALL), str(tmp_path)) == "completed"
    assert outputs(storage) == stored
    # Later groups may be smaller, because full memory starts incomplete groups.
    assert [count for count, _, _ in groups[:2]] == [DEVICES, DEVICES]
    assert len(groups) < len(json.loads(stored["metadata.json"])["shards"])


def test_partials_of_several_open_shards_serve_a_single_device(
    storage, tmp_path, tiny_models, calm, groups, monkeypatch
):
    resource, stored = calm
    model = tiny_models(**SMALL)
    with monkeypatch.context() as patch:
        interruption = Interruption(patch, batches=5)
        work = a_work(resource, **SMALL)
        assert run_extract(work, model, str(tmp_path), interruption.control) == "preempted"
    assert outputs(storage).items() < stored.items() and storage.names(BUCKET, "partials/")
    with monkeypatch.context() as patch:
        patch.setattr(Model, "devices", property(lambda _: 1))
        second = Interruption(patch)
        assert run_extract(a_work(resource, epoch=2, **SMALL), model, str(tmp_path)) == "completed"
    assert outputs(storage) == stored
    assert second.done < batches_of(stored)


def test_a_drained_extraction_finishes_every_shard_that_it_began(storage, tmp_path, tiny_models, calm, groups):
    resource, stored = calm
    control = Control()
    storage.faults = lambda what: control.request("drain") if "/upload/" in what else None
    assert run_extract(a_work(resource, **SMALL), tiny_models(**SMALL), str(tmp_path), control) == "drained"
    storage.faults = lambda what: None
    names = sorted(name for name in outputs(storage) if name.startswith("shard_"))
    assert 1 <= len(names) < len(stored) and outputs(storage).items() < stored.items()
    numbers = [int(name[6:10]) for name in names]
    assert numbers == list(range(1, len(numbers) + 1))


def test_little_memory_makes_small_groups(storage, tmp_path, tiny_models, calm, groups, monkeypatch):
    resource, stored = calm
    monkeypatch.setattr("gleaner_worker.shard_memory.most_shards", lambda size, most_open: 2)
    assert run_extract(a_work(resource, **SMALL), tiny_models(**SMALL), str(tmp_path)) == "completed"
    assert outputs(storage) == stored


def test_eight_real_devices_store_the_bytes_of_one(storage, tmp_path, tiny_folder, calm):
    resource, stored = calm
    answer = a_work_answer(resource, model=tiny_folder, **SMALL)
    order = {"storage": os.environ["STORAGE_EMULATOR_HOST"], "answer": answer, "folder": str(tmp_path / "home")}
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, f"{HERE}/extract_process.py"],
        env=os.environ | flags,
        input=json.dumps(order) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "completed" in done.stdout.split(), done.stderr[-3000:]
    assert outputs(storage) == stored
