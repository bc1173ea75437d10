"""Compiled programs: one for each run, none while steps run, and none in the next process."""

import json
import math
import os
import stat
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from build import a_model, a_spec, fails
from device_rows import stored_of
from gleaner_worker.model.program import block
from gleaner_worker.model.program.program import RESERVE
from gleaner_worker.model.program.rows import pack

pytestmark = pytest.mark.slow

MAX_LENGTH = 128
# JAX reports every program that this process compiles or reads from the cache, and every read from the cache.
PROGRAM, FROM_CACHE = "/jax/core/compile/backend_compile_duration", "/jax/compilation_cache/cache_hits"
events: list[str] = []
jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **_: events.append(event))
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))


def programs():
    return events.count(PROGRAM)


def some_samples(count=120):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, MAX_LENGTH + 1, count)
    return [
        SimpleNamespace(token_ids=rng.integers(0, 600, n).astype(np.int32), positions=None, pools=None) for n in lengths
    ]


def run_all(model, samples):
    """Computes the samples in steps of one row each."""
    for row in pack([(len(s.token_ids), len(s.token_ids)) for s in samples], model.row_limits):
        model.start([[samples[index] for index in row]]).collect()


@pytest.mark.parametrize(
    ("tokens", "row_tokens"),
    [
        ("all", 2048),
        pytest.param("mean", 128, marks=pytest.mark.long),
        pytest.param("-4:", 128, marks=pytest.mark.long),
    ],
)
def test_at_most_three_programs_serve_samples_of_all_lengths(tiny_folder, tokens, row_tokens):
    spec = a_spec(model=tiny_folder, max_seq_length=MAX_LENGTH, row_tokens=row_tokens, tokens=tokens, dtype="int8")
    none = programs()
    model = a_model(spec)
    before = programs()
    assert before - none <= 3
    samples = some_samples()
    if tokens == "-4:":
        for sample in samples:
            sample.positions = np.arange(len(sample.token_ids))[-4:]
    run_all(model, samples)
    assert programs() == before


def test_the_version_of_a_program_changes_with_its_code(tiny_folder, monkeypatch):
    spec = a_spec(model=tiny_folder)
    version = a_model(spec).program_version
    assert a_model(spec).program_version == version
    dense = block.dense
    monkeypatch.setattr(block, "dense", lambda *arguments: (dense(*arguments)[0] * 1.5, dense(*arguments)[1]))
    assert a_model(spec).program_version != version


def test_compiled_programs_are_counted():
    """Without this count the test above could not fail."""
    before = programs()
    jax.jit(lambda x: x * 3 + before)(np.ones(7))
    assert programs() == before + 1


_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import environment
import os
os.environ.pop("JAX_COMPILATION_CACHE_DIR")
os.environ.pop("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
from build import a_model, a_spec
from test_compile import FROM_CACHE, MAX_LENGTH, events, programs, run_all, some_samples
model = a_model(a_spec(model=sys.argv[2], max_seq_length=MAX_LENGTH), sys.argv[3])
run_all(model, some_samples())
print(json.dumps([programs(), events.count(FROM_CACHE)]))
"""


@pytest.mark.long
def test_a_second_process_reuses_the_compiled_programs(tiny_folder, tmp_path):
    here = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support")

    def start():
        argv = [sys.executable, "-c", _PROCESS, here, tiny_folder, str(tmp_path / "home")]
        output = subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=300).stdout
        return json.loads(output.splitlines()[-1])

    count, from_cache = start()
    assert (count >= 1, from_cache) == (True, 0)
    assert start() == [count, count]
    cache = tmp_path / "home" / "jax-cache"
    # A writer of this folder can run code here.
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700 and os.listdir(cache)


def bytes_of_one_step(model):
    """The memory of a device that holds one step of this program and no second one."""
    memory = model._program.run.memory_analysis()
    need = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    return math.ceil(need / (1 - RESERVE))


def assert_gives_rows_of(other, model, sample, step):
    """That the step of this sample on `model` has the bits of `other`."""
    (found,), (expected,) = step.collect(), other.start([[sample]]).collect()
    found, expected = (stored_of(model, each, 0)[0]["resid_post"].view(np.uint16) for each in (found, expected))
    np.testing.assert_array_equal(found, expected)


def test_a_step_has_fewer_rows_where_a_device_would_hold_only_one_step(tiny_folder):
    spec = a_spec(model=tiny_folder, max_seq_length=MAX_LENGTH)
    roomy = a_model(spec)
    for device_bytes in (bytes_of_one_step(roomy), bytes_of_one_step(roomy) - 1):
        tight = a_model(spec, device_bytes=device_bytes)
        assert 1 <= tight.shape.rows < roomy.shape.rows
        assert tight.tuning.tried["step_tokens"] == tight.shape.rows * tight.shape.row_tokens
        assert tight._program.in_flight > 1
        (sample,) = some_samples(1)
        assert_gives_rows_of(roomy, tight, sample, tight.start([[sample]]))


def test_steps_wait_for_the_memory_of_earlier_steps(tiny_folder):
    """On a device that holds one step, the earlier step moves to the host first, in any order of collection."""
    samples = some_samples(4)
    spec = a_spec(model=tiny_folder, max_seq_length=MAX_LENGTH, row_tokens=2048)  # a row a step
    roomy = a_model(spec)
    tight = a_model(spec, device_bytes=bytes_of_one_step(roomy))
    assert (tight._program.in_flight, roomy._program.in_flight) == (1, 3)
    running = [tight.start([[sample]]) for sample in samples]
    assert [step._is_on_host for step in running] == [True, True, True, False]
    for sample, step in reversed(list(zip(samples, running, strict=True))):
        assert_gives_rows_of(roomy, tight, sample, step)
    with fails("model", "lower max_seq_length"):
        a_model(spec, device_bytes=bytes_of_one_step(roomy) - 2)


def test_an_abandoned_step_holds_no_memory(tiny_models):
    model = tiny_models(max_seq_length=MAX_LENGTH)
    model.start([some_samples(1)])
    assert model._in_flight[-1]() is None


@pytest.mark.parametrize(
    "before, after, kept",
    [
        ({}, {"layers": [1], "dtype": "int8", "tokens": "mean"}, True),
        pytest.param({}, {"compute_dtype": "fp32"}, False, marks=pytest.mark.long),
        ({"layers": [0]}, {}, False),
    ],
)
def test_weights_are_kept_for_the_next_run_of_the_same_model_or_freed(tiny_folder, before, after, kept):
    first = a_model(a_spec(model=tiny_folder, **before))
    then = a_model(a_spec(model=tiny_folder, **after), previous=first)
    assert (then.params is first.params) == kept
    assert first.params["embed"].is_deleted() != kept and not then.params["embed"].is_deleted()


def test_weights_of_another_layout_are_loaded_again_with_the_depth_of_the_new_run(tiny_folder):
    first = replace(a_model(a_spec(model=tiny_folder)), layout=None)
    then = a_model(a_spec(model=tiny_folder, layers=[0]), previous=first)
    then.start([some_samples(1)]).wait()
    assert first.params["embed"].is_deleted() and len(then.params["blocks"]["wq"]) == 1
