"""Extraction on several devices: steps with rows of several shards, and the bytes of a single device."""

import numpy as np
import pytest

from build import BUCKET, TINY_CONFIG, a_stream, a_work, a_work_answer, outputs, run_extract, shard_gb, text_lines
from environment import with_devices
from fake_storage import serving
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.sites import Capture
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.model.model import Model
from gleaner_worker.model.program.device_output import HostRow, OutputPart

pytestmark = pytest.mark.slow

SMALL = {"shard_size_gb": shard_gb(400), "max_seq_length": 64}
DEVICES = 4


class Together:
    """A single device in the place of several: it computes their rows in turn."""

    def __init__(self, pending):
        self._pending = pending

    def collect(self):
        return [host for each in self._pending for host in each.collect()]


@pytest.fixture
def steps(monkeypatch):
    """The number of rows of every step, on DEVICES devices of a row each."""
    started, start = [], Model.start

    def start_each(model, rows):
        assert 1 <= len(rows) <= DEVICES
        started.append(len(rows))
        with monkeypatch.context() as one:
            one.setattr(Model, "rows_per_step", real)
            return Together([start(model, [row]) for row in rows])

    real = Model.rows_per_step
    monkeypatch.setattr(Model, "start", start_each)
    monkeypatch.setattr(Model, "rows_per_step", property(lambda _: DEVICES))
    return started


@pytest.fixture(scope="module")
def run_of_one_device(tmp_path_factory, tiny_models):
    """(the bucket with the stream, the stream, the outputs of a single device)."""
    with serving() as storage:
        resource = a_stream(storage, text_lines(100))
        run_extract(a_work(resource, **SMALL), tiny_models(**SMALL), str(tmp_path_factory.mktemp("one-device")))
        stored = outputs(storage)
    storage.clear("activations/", "partials/")
    return storage, resource, stored


@pytest.fixture
def single_device(storage, run_of_one_device):
    """(stream, the outputs of a single device). The stream is in the bucket."""
    bucket, resource, stored = run_of_one_device
    storage.load(bucket)
    return resource, stored


def test_a_step_takes_rows_of_several_shards_and_windows(storage, extract, single_device, steps):
    resource, stored = single_device
    assert extract(resource, **SMALL) == "completed"
    assert outputs(storage) == stored
    # Memory that is full may start a smaller step, and so does the end of the stream.
    assert steps[:3] == [DEVICES] * 3
    assert sum(count < DEVICES for count in steps) <= len(steps) / 3


def test_a_worker_with_fewer_devices_uses_the_partials_of_several_open_shards(
    storage, interrupted, single_device, steps, monkeypatch
):
    resource, stored = single_device
    assert interrupted(resource, samples=50, **SMALL).outcome == "preempted"
    assert outputs(storage).items() < stored.items() and storage.names(BUCKET, "partials/")
    monkeypatch.setattr(Model, "rows_per_step", property(lambda _: 1))
    second = interrupted(resource, epoch=2, **SMALL)
    assert outputs(storage) == stored
    assert second.outcome == "completed" and second.done <= 100


def test_a_drained_extraction_finishes_every_shard_of_its_windows(storage, extract, single_device, steps):
    resource, stored = single_device
    control = ExtractionState()
    storage.faults = lambda request: control.request("drain") if "/upload/" in request else None
    assert extract(resource, control, **SMALL) == "drained"
    storage.faults = lambda request: None
    names = sorted(name for name in outputs(storage) if name.startswith("shard_"))
    assert 1 <= len(names) < len(stored) and outputs(storage).items() < stored.items()
    numbers = [int(name[6:10]) for name in names]
    assert numbers == list(range(1, len(numbers) + 1))


def test_little_memory_changes_no_stored_byte(storage, extract, single_device, steps, monkeypatch):
    resource, stored = single_device
    monkeypatch.setattr("gleaner_worker.extract.shard_memory.most_shards", lambda *_: 2)
    assert extract(resource, **SMALL) == "completed"
    assert outputs(storage) == stored
    assert min(steps[:-1]) < DEVICES  # a step that waits for no more rows, because their shards have no room


def test_eight_real_devices_store_the_bytes_of_one(storage, tmp_path, tiny_folder, single_device, forks):
    resource, stored = single_device
    answer = a_work_answer(resource, model=tiny_folder, **SMALL)
    variables = with_devices(8)
    done = forks.run("extract_process:run", answer, str(tmp_path / "home"), environment=variables)
    assert done.stdout == "completed\n", done.stderr[-3000:]
    assert outputs(storage) == stored


def test_a_row_of_which_this_process_holds_a_part_is_refused():
    """Each process of a mesh over several processes holds the parts of its own devices."""
    layers, width, site = 2, 8, "resid_post"
    config = parse_config(TINY_CONFIG, "tiny")
    capture = Capture(config, (0, 1), (site,), "all", "int8")
    half = np.zeros((layers, 1, width, config.d_model // 2), np.int8)
    stats = np.zeros((1, 1, width, len(capture.stats_columns(site)) - 1), np.float32)

    def row_without(kind=None):
        parts = {
            "rows": [OutputPart(0, 0, 0, half), OutputPart(0, 0, config.d_model // 2, half)],
            "scale": [OutputPart(0, 0, 0, np.zeros((layers, 1, width), np.float32))],
            "stats": [OutputPart(0, 0, 0, stats), OutputPart(1, 0, 0, stats)],
        }
        if kind:
            parts[kind].pop()
        HostRow({name: {site: each} for name, each in parts.items()}, 0, np.array([5, 3]), capture)

    row_without()
    for kind in ("rows", "scale", "stats"):
        with pytest.raises(AssertionError, match=f"numbers for each vector in the {kind} of {site}"):
            row_without(kind)
