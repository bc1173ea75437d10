"""Compiled programs: all made ahead, none while batches run, and none again in the next process."""

import json
import os
import stat
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from build import BUCKET, a_model, a_spec, a_stream, a_work, outputs, run_extract, shard_gb, text_lines
from gleaner_worker.batching import batch_height, batch_shapes, plan_batches
from gleaner_worker.failures import Failure
from gleaner_worker.model import model as model_module

pytestmark = pytest.mark.slow

MAX_LENGTH = 128


def some_samples(count=120):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, MAX_LENGTH + 1, count)
    return [SimpleNamespace(token_ids=rng.integers(0, 600, n).astype(np.int32), positions=None) for n in lengths]


def run_all(model, samples):
    batches = plan_batches([len(s.token_ids) for s in samples], MAX_LENGTH)
    for batch in batches:
        model.start([[samples[s] for s in batch.rows]], batch.height, batch.width).collect()
    return {(batch.height, batch.width) for batch in batches}


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["all", "mean", "-4:"])
def test_nothing_is_compiled_after_the_warm_up(tiny_folder, tokens):
    spec = a_spec(model=tiny_folder, max_seq_length=MAX_LENGTH, tokens=tokens, dtype="int8")
    model = a_model(spec)
    before = model.programs
    model.warm_up().wait()
    shapes = batch_shapes(MAX_LENGTH)
    assert model.programs - before == len(shapes)
    before = model.programs
    samples = some_samples()
    if tokens == "-4:":
        for sample in samples:
            sample.positions = np.arange(len(sample.token_ids))[-4:]
    assert run_all(model, samples) == set(shapes) and all(model.is_ready(*shape) for shape in shapes)
    assert model.programs == before


@pytest.mark.long
def test_programs_that_are_compiled_while_batches_run_are_counted(tiny_folder):
    """Without this count the test above could not fail."""
    model = a_model(a_spec(model=tiny_folder, max_seq_length=MAX_LENGTH, layers=[1]))
    before = model.programs
    assert not model.is_ready(batch_height(32), 32)
    used = run_all(model, some_samples())
    assert model.programs == before + len(used)


_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import environment
import os
os.environ.pop("JAX_COMPILATION_CACHE_DIR")
os.environ.pop("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
from build import a_model, a_spec
from test_compile import MAX_LENGTH, run_all, some_samples
model = a_model(a_spec(model=sys.argv[2], max_seq_length=MAX_LENGTH), sys.argv[3])
model.warm_up().wait()
run_all(model, some_samples())
print(json.dumps([model.programs, model.compiles]))
"""


@pytest.mark.long
def test_a_second_process_compiles_nothing_again(tiny_folder, tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))

    def start():
        argv = [sys.executable, "-c", _PROCESS, here, tiny_folder, str(tmp_path / "home")]
        output = subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=300).stdout
        return json.loads(output.splitlines()[-1])

    programs, compiles = start()
    assert programs == compiles == len(batch_shapes(MAX_LENGTH))
    assert start() == [programs, 0]
    cache = tmp_path / "home" / "jax-cache"
    # A writer of this folder can run code here.
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700 and os.listdir(cache)


def test_batches_wait_for_the_memory_of_earlier_batches(tiny_folder):
    """On a device that holds one batch, the earlier batch moves to the host first, in any order of collection."""
    samples = some_samples(16 * 4)
    shape = (batch_height(MAX_LENGTH), MAX_LENGTH)
    spec = a_spec(model=tiny_folder, max_seq_length=MAX_LENGTH)
    roomy = a_model(spec)
    memory = roomy._programs.get(shape).run.memory_analysis()
    need = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    tight = a_model(spec, device_bytes=need)
    assert tight._programs.get(shape).in_flight == 1 and roomy._programs.get(shape).in_flight == 3
    parts = [samples[begin : begin + 16] for begin in range(0, 64, 16)]
    running = [tight.start([part], *shape) for part in parts]
    assert [pending._on_host is not None for pending in running] == [True, True, True, False]
    for part, pending in reversed(list(zip(parts, running, strict=True))):
        (host,), (expected,) = pending.collect(), roomy.start([part], *shape).collect()
        for b in range(16):
            np.testing.assert_array_equal(
                host.rows("resid_post", b).view(np.uint16), expected.rows("resid_post", b).view(np.uint16)
            )
    with pytest.raises(Failure, match="lower max_seq_length") as failure:
        a_model(spec, device_bytes=need - 1).start(parts[:1], *shape)
    assert failure.value.kind == "model"


def test_an_abandoned_batch_holds_no_memory(tiny_models):
    model = tiny_models(max_seq_length=32)
    model.start([some_samples(1)[:1]], *batch_shapes(MAX_LENGTH)[-1])
    assert model._in_flight[-1]() is None


@pytest.mark.parametrize(
    "before, after, kept",
    [
        ({}, {"layers": [1], "dtype": "int8", "tokens": "mean"}, True),
        ({}, {"compute_dtype": "fp32"}, False),
        ({"layers": [0]}, {}, False),
    ],
)
def test_weights_are_kept_for_the_next_run_of_the_same_model_or_freed(tiny_folder, before, after, kept):
    first = a_model(a_spec(model=tiny_folder, **before))
    then = a_model(a_spec(model=tiny_folder, **after), previous=first)
    assert (then.params is first.params) == kept
    assert first.params["embed"].is_deleted() != kept and not then.params["embed"].is_deleted()


@pytest.fixture
def compiled(monkeypatch):
    """The shapes in the order of their compilation."""
    shapes, compile_batch = [], model_module.compile_batch

    def noting(what, layout, params, shape, *more):
        shapes.append(shape)
        return compile_batch(what, layout, params, shape, *more)

    monkeypatch.setattr(model_module, "compile_batch", noting)
    return shapes


def test_a_stream_compiles_the_shapes_of_its_shards_and_no_others(storage, tmp_path, tiny_folder, compiled):
    spec = {"shard_size_gb": shard_gb(500), "max_seq_length": 512}
    model = a_model(a_spec(model=tiny_folder, **spec), str(tmp_path))
    assert len(batch_shapes(512)) == 8
    for stream, lines, shapes in (
        ("001", text_lines(60, words=3), [(64, 32)]),
        ("002", text_lines(60, words=3), []),  # the programs are kept
        ("003", [json.dumps({"text": "apples " * count}) for count in (400, 300)], [(5, 384), (4, 512)]),
    ):
        compiled.clear()
        work = a_work(a_stream(storage, lines, stream=stream), stream=stream, **spec)
        assert run_extract(work, model, str(tmp_path)) == "completed"
        assert sorted(compiled, reverse=True) == shapes


@pytest.mark.long
def test_a_stored_shard_compiles_nothing(storage, tmp_path, tiny_folder, compiled):
    spec = {"shard_size_gb": shard_gb(500), "max_seq_length": 512}
    lines = [*[json.dumps({"text": "apples " * 200})] * 4, *text_lines(30, words=3)]
    work = a_work(a_stream(storage, lines), **spec)
    run_extract(work, a_model(a_spec(model=tiny_folder, **spec), str(tmp_path)), str(tmp_path))
    assert sorted(compiled) == [(8, 256), (64, 32)]
    calm = outputs(storage)
    last = max(name for name in calm if name.startswith("shard_"))
    for name in (last, "metadata.json"):
        storage.delete(BUCKET, f"activations/my-run/tpu_7/{name}")
    compiled.clear()
    run_extract(work, a_model(a_spec(model=tiny_folder, **spec), str(tmp_path)), str(tmp_path))
    assert compiled == [(64, 32)]
    assert outputs(storage) == calm
