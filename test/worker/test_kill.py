"""An extractor that is killed at any step, any number of times, ends with the bytes of an undisturbed extractor."""

import json
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from build import a_stream, a_work_answer, outputs, text_lines
from read_shards import read_stream

pytestmark = pytest.mark.slow

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extract_process.py")
LINES = [json.dumps(json.loads(line) | {"n": number}) for number, line in enumerate(text_lines(60, 10))]
LINES.append("junk")
FORMATS = {
    "safetensors": {},
    "safetensors.zst": {"format": "safetensors.zst", "keep": ["n"]},
    "pkl.gz": {"format": "pkl.gz", "dtype": "fp32"},
    "int8 means": {"dtype": "int8", "tokens": "mean", "sites": ["resid_mid", "mlp_out"]},
    "two positions": {"tokens": [0, -1], "dtype": "fp16"},
}
STEPS = [
    "storage.objects:Bucket.download",
    "extract.extract:count_lines",
    "extract.extract:read_documents",
    "extract.extract:make_samples",
    "shards.existing_shards:ExistingShards.find",
    "extract.extract:start_shard",
    "shards.partial:Partials.restore",
    "model.model:Model.start",
    "model.device_output:InFlightStep.collect",
    "extract.extract:put_sample",
    "extract.extract:shard_stats",
    "extract.extract:encode_shard",
    "extract.extract:EncodedShard",
    "extract.upload:Uploader.store",
    "storage.objects:Bucket.create",
    "extract.upload:Uploader._store_summary",
    "extract.upload:Uploader._create",
]


class Processes:
    """Extractors that a helper process forks: one at a time."""

    def __init__(self):
        self._parent = subprocess.Popen(
            [sys.executable, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._errors = []
        self._reader = threading.Thread(target=lambda: self._errors.extend(self._parent.stderr), daemon=True)
        self._reader.start()
        self.pid = None

    def run(self, **order):
        """The outcome, or "killed"."""
        order["storage"] = os.environ["STORAGE_EMULATOR_HOST"]
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        outcome = None
        for line in self._parent.stdout:
            word, *rest = line.split()
            if word == "pid":
                self.pid = int(rest[0])
            elif word == "ended":
                self.pid = None
                assert rest[0] in ("0", str(-signal.SIGKILL)), "".join(self._errors[-60:])
                return outcome if rest[0] == "0" else "killed"
            else:
                outcome = word
        raise AssertionError("".join(self._errors[-60:]))

    def kill(self):
        if pid := self.pid:
            os.kill(pid, signal.SIGKILL)

    def close(self):
        self._parent.stdin.close()
        self._parent.wait(60)
        self._reader.join()
        self._parent.stdout.close()
        self._parent.stderr.close()


@pytest.fixture(scope="module")
def processes():
    started = Processes()
    yield started
    started.close()


@pytest.fixture
def stream(storage, extract, tmp_path, tiny_models, tiny_folder, processes):
    """stream(spec) -> attempt(epoch, **how), after a check against the outputs of an undisturbed extraction."""

    def make(spec):
        spec = spec | {"max_seq_length": 64}  # a small program, which takes most of an attempt
        model = tiny_models(**spec)
        spec |= {"shard_size_gb": model.row_bytes * (8 if "tokens" in spec else 250) / 1e9}
        resource = a_stream(storage, LINES)
        extract(resource, **spec)
        expected = outputs(storage)
        assert sum(name.startswith("shard_") for name in expected) > 5
        assert len(read_stream(expected, spec.get("format", "safetensors"))) == 60
        storage.clear("activations/")

        def attempt(epoch, **how):
            answer = a_work_answer(resource, epoch=epoch, model=tiny_folder, **spec)
            outcome = processes.run(answer=answer, folder=str(tmp_path), **how)
            # After any kill: every stored object has the right bytes, and the last shard comes last.
            stored = outputs(storage)
            assert stored.items() <= expected.items()
            last = max(name for name in expected if name.startswith("shard_"))
            assert (last in stored) == (stored == expected)
            assert (outcome == "completed") <= (stored == expected)
            return outcome

        return attempt

    return make


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", STEPS)
def test_an_extractor_killed_at_later_and_later_calls_of_a_step_completes(stream, step):
    attempt = stream({})
    outcomes = [attempt(1, kill=step, nth=1), attempt(2, kill=step, nth=1, after=True)]
    while outcomes[-1] == "killed":
        outcomes.append(attempt(len(outcomes) + 1, kill=step, nth=2 ** (len(outcomes) - 1)))
        assert len(outcomes) < 12
    assert outcomes[:2] == ["killed", "killed"] and outcomes[-1] == "completed"


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", list(FORMATS)[1:])
def test_an_extractor_killed_at_every_step_in_turn_stores_the_same_bytes_in_every_format(stream, name):
    attempt = stream(FORMATS[name])
    for number, step in enumerate(STEPS, 1):
        assert attempt(number, kill=step, nth=1, after=number % 2 == 1) == "killed"
    assert attempt(len(STEPS) + 1) == "completed"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "nth"),
    [
        ("safetensors", 1),
        ("safetensors", 2),
        ("safetensors", 3),
        ("safetensors.zst", 2),
        ("pkl.gz", 3),
        ("int8 means", 1),
        ("two positions", 2),
    ],
)
def test_an_extractor_killed_while_it_saves_samples_completes(storage, stream, name, nth):
    """Kills with and without notice: some partials are stored, and every stored partial is complete."""
    attempt = stream(FORMATS[name])
    for epoch in (1, 2, 3):
        attempt(epoch, flush_at=2 * epoch + nth, kill="storage.objects:Bucket.create", nth=nth, after=epoch == 2)
        attempt(epoch + 10, flush_at=2 * epoch + nth, kill="shards.partial:Partials.save", nth=2)
        attempt(epoch + 20, kill="shards.partial:Partials.restore", nth=nth, after=epoch == 2)
    assert attempt(99) == "completed"


class Killer:
    """Kills the current process at its nth upload: before the bucket has the object, or before its answer."""

    def __init__(self, moment, processes):
        self.moment, self.processes, self.uploads, self.nth = moment, processes, 0, 0

    def __call__(self, request):
        if self.processes.pid is None or "/upload/" not in request:
            return None
        self.uploads += 1
        if self.uploads != self.nth:
            return None
        self.processes.kill()
        return 503 if self.moment == "before" else ("after", 503)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_extractor_killed_at_an_upload_completes(storage, stream, processes, moment):
    attempt = stream({})
    storage.faults = killer = Killer(moment, processes)
    outcomes = []
    while not outcomes or outcomes[-1] == "killed":
        killer.uploads, killer.nth = 0, len(outcomes) + 1
        outcomes.append(attempt(len(outcomes) + 1))
        assert len(outcomes) < 12
    assert outcomes.count("killed") >= 3 and outcomes[-1] == "completed"


@pytest.mark.long
def test_an_extractor_killed_at_any_time_completes(stream, processes):
    chance = random.Random(4)
    attempt = stream({"shard_size_gb": 1e-5})
    for epoch in range(1, 9):
        timer = threading.Timer(chance.uniform(0.2, 2.5), processes.kill)
        timer.start()
        attempt(epoch, flush_at=chance.choice([None, 3]))
        timer.cancel()
        timer.join()
    assert attempt(99) == "completed"
