"""An extractor that is killed at any step, any number of times, ends with the bytes of an undisturbed extractor."""

import json
import random
import signal
import threading

import pytest

from build import a_stream, a_work_answer, outputs, text_lines
from read_shards import read_stream
from sae_folders import reduced

pytestmark = pytest.mark.slow

LINES = [json.dumps(json.loads(line) | {"n": number}) for number, line in enumerate(text_lines(60, 10))]
LINES.append("junk")
FORMATS = {
    "safetensors": {},
    "safetensors.zst": {"format": "safetensors.zst", "keep": ["n"]},
    "pkl.gz": {"format": "pkl.gz", "dtype": "fp32"},
    "int8 means": {"dtype": "int8", "tokens": "mean", "sites": ["resid_mid", "mlp_out"]},
    "two positions": {"tokens": [0, -1], "dtype": "fp16"},
    "features and moments": {"sites": []},
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
    "model.program.device_output:InFlightStep.collect",
    "extract.extract:put_samples",
    "extract.extract:shard_stats",
    "extract.extract:encode_shard",
    "extract.extract:EncodedShard",
    "extract.upload:Uploader.store",
    "storage.objects:Bucket.create",
    "extract.upload:Uploader._store_summary",
    "extract.upload:Uploader._create",
]


@pytest.fixture
def stream(storage, extract, tmp_path, tiny_models, tiny_folder, sae_folder, forks):
    """stream(spec) -> attempt(epoch, **how), after a check against the outputs of an undisturbed extraction."""

    def make(spec):
        spec = reduced(sae_folder) if spec.get("sites") == [] else spec
        spec = spec | {"max_seq_length": 64}  # a small program, which takes most of an attempt
        model = tiny_models(**spec)
        spec |= {"shard_size_gb": model.row_bytes * (8 if "tokens" in spec else 250) / 1e9}
        resource = a_stream(storage, LINES)
        extract(resource, **spec)
        expected = outputs(storage)
        assert sum(name.startswith("shard_") for name in expected) > 5
        assert len(read_stream(expected, spec.get("format", "safetensors"))) == 60
        storage.clear("activations/")

        def attempt(epoch, kill=None, nth=1, after=False, flush_at=None):
            answer = a_work_answer(resource, epoch=epoch, model=tiny_folder, **spec)
            ended = forks.run("extract_process:run", answer, str(tmp_path), kill, nth, after, flush_at)
            assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
            outcome = ended.stdout.strip() if ended.returncode == 0 else "killed"
            # After any kill: every stored object has the right bytes, and the last shard comes last.
            stored = outputs(storage)
            assert stored.items() <= expected.items()
            last = max(name for name in expected if name.startswith("shard_"))
            assert (last in stored) == (stored == expected)
            assert (outcome == "completed") <= (stored == expected)
            return outcome

        return attempt

    return make


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_an_extractor_killed_at_later_and_later_calls_of_a_step_completes(stream, step):
    attempt = stream({})
    outcomes = [attempt(1, kill=step, nth=1), attempt(2, kill=step, nth=1, after=True)]
    while outcomes[-1] == "killed":
        outcomes.append(attempt(len(outcomes) + 1, kill=step, nth=2 ** (len(outcomes) - 1)))
        assert len(outcomes) < 12
    assert outcomes[:2] == ["killed", "killed"] and outcomes[-1] == "completed"


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("name", list(FORMATS)[1:])
def test_an_extractor_killed_at_every_sixth_step_in_turn_stores_the_same_bytes_in_every_format(stream, name, first):
    attempt = stream(FORMATS[name])
    steps = STEPS[first::6]
    for number, step in enumerate(steps, 1):
        assert attempt(number, kill=step, nth=1, after=number % 2 == 1) == "killed"
    assert attempt(len(steps) + 1) == "completed"


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

    def __init__(self, moment, forks):
        self.moment, self.forks, self.uploads, self.nth = moment, forks, 0, 0

    def __call__(self, request):
        if "/upload/" not in request:
            return None
        self.uploads += 1
        if self.uploads != self.nth:
            return None
        self.forks.last.kill()
        return 503 if self.moment == "before" else ("after", 503)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_extractor_killed_at_an_upload_completes(storage, stream, forks, moment):
    attempt = stream({})
    storage.faults = killer = Killer(moment, forks)
    outcomes = []
    while not outcomes or outcomes[-1] == "killed":
        killer.uploads, killer.nth = 0, len(outcomes) + 1
        outcomes.append(attempt(len(outcomes) + 1))
        assert len(outcomes) < 12
    assert outcomes.count("killed") >= 3 and outcomes[-1] == "completed"


@pytest.mark.long
def test_an_extractor_killed_at_any_time_completes(stream, forks):
    chance = random.Random(4)
    attempt = stream({"shard_size_gb": 1e-5})
    for epoch in range(1, 9):
        timer = threading.Timer(chance.uniform(0.2, 2.5), lambda: forks.last.kill())
        timer.start()
        attempt(epoch, flush_at=chance.choice([None, 3]))
        timer.cancel()
        timer.join()
    assert attempt(99) == "completed"
