"""Python code of jobs: its globals, its result and its failures."""

import json

import pytest

from build import BUCKET
from job_attempts import FOLDER, RAN, needs_root, with_jax

pytestmark = [needs_root, pytest.mark.slow]

SEED = """
import jax
import jax.numpy as jnp

x = jnp.ones((100, 100))
result = jnp.dot(x, x).sum()
logger.info(f'Result: {result}')
"""


def test_code_has_the_globals_and_the_environment_of_the_old_job_service(jobs):
    code = f"""{SEED}
import os, json
jax.distributed.initialize()
assert jax.process_count() == 1
assert challenge_number == 42 and __name__ == '__main__' and jnp is jax.numpy
result = json.dumps({{key: os.environ.get(key) for key in
    ('JOB_ID', 'TPU_LIBRARY_PATH', 'JAX_PLATFORMS', 'CHALLENGE_NUMBER', 'GCE_METADATA_HOST', 'GLEANER_HOME')}})
"""
    ending = jobs.run(prepare=with_jax, code=code, challenge_number=42)
    assert (ending["outcome"], ending["cause"], ending["exit_code"], ending["error"]) == ("completed", None, 0, None)
    assert json.loads(ending["result"]) == {
        "JOB_ID": "j1",
        "TPU_LIBRARY_PATH": None,
        "JAX_PLATFORMS": "cpu",
        "CHALLENGE_NUMBER": "42",
        "GCE_METADATA_HOST": None,
        "GLEANER_HOME": None,
    }
    assert "INFO Result: 1000000.0" in jobs.output and ending["ran"] == RAN
    assert not (jobs.home / "jobs" / "j1-e2").exists()


RESULTS = {
    "no result": ("x = 1", None),
    "an array": ("import numpy\nresult = numpy.arange(3)", "[0 1 2]"),
    "an exit without error": ("result = 'early'\nimport sys\nsys.exit(0)", "early"),
    "a lone surrogate": ("result = 'a\\ud800b\\U0001f600'", "a\ufffdb\U0001f600"),
    "the file of the result": ("import os\nopen(os.environ['JOB_RESULT'], 'w').write('by hand')", "by hand"),
}


@pytest.mark.parametrize(("code", "result"), RESULTS.values(), ids=RESULTS)
def test_the_global_variable_result_becomes_text(jobs, code, result):
    ending = jobs.run(code=code)
    assert (ending["outcome"], ending["result"]) == ("completed", result), jobs.output


POOLS = {
    "Pool by spawn": "multiprocessing.get_context('spawn').Pool(2)",
    "ProcessPoolExecutor by forkserver": "futures.ProcessPoolExecutor(2, multiprocessing.get_context('forkserver'))",
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_a_pool_runs_functions_of_the_code_with_the_globals_of_the_code(jobs, pool):
    code = f"""
import multiprocessing
from concurrent import futures
jax.distributed.initialize()
def square(n):
    logger.info(f"{{n}} in {{__file__}}")
    return n * n, challenge_number, jnp is jax.numpy, "_fill" in globals()
if __name__ == "__main__":
    with {pool} as pool:
        print(list(pool.map(square, range(3))), flush=True)
        list(pool.map(square, ["no number"]))
"""
    jobs.write_jax("import os\ndef refuse(): os._exit(3)\ndistributed.initialize = refuse\n")
    ending = jobs.run(code=code, challenge_number=7)
    assert (ending["cause"], ending["error"][:9]) == ("exit", "TypeError"), jobs.output
    assert str([(n * n, 7, True, False) for n in range(3)]) in jobs.output
    assert "    return n * n, challenge_number" in jobs.output  # the line of the child that failed
    assert f"2 in {jobs.home}/jobs/j1-e2/job.py" in jobs.output


def test_code_has_its_file_and_its_arguments(jobs):
    args = ["--steps", "3", "", "two words"]
    code = "import sys\nresult = (sys.argv, open(__file__).readline(), __spec__)"
    assert jobs.run(code=code, args=args)["result"] == str((["<job j1>", *args], "import sys\n", None))


FAILURES = {
    "a syntax error": ("x = 1\nx = = 2", "exit", "SyntaxError: invalid syntax", ["x = = 2", 'File "<job j1>", line 2']),
    "an exception": (
        "def f():\n    raise KeyError('no')\nf()",
        "exit",
        "KeyError: 'no'",
        ['File "<job j1>", line 2, in f', "raise KeyError('no')"],
    ),
    "an error that cannot be printed": (
        "class E(Exception):\n    def __str__(self): raise E()\nraise E()",
        "exit",
        "E: <exception str() failed>",
        [],
    ),
    "no memory": ("x = bytearray(1 << 60)", "memory", "MemoryError", []),
    "a result whose __str__ raises": (
        "class R:\n    def __str__(self): return 1 / 0\nresult = R()",
        "result",
        "Failed to convert the result, a R, to text: ZeroDivisionError: division by zero",
        [],
    ),
    "a result whose __str__ returns a number": (
        "class R:\n    def __str__(self): return 3\nresult = R()",
        "result",
        "__str__ returned non-string",
        [],
    ),
}


@pytest.mark.parametrize(("code", "cause", "error", "printed"), FAILURES.values(), ids=FAILURES)
def test_a_failure_of_the_code_has_a_cause_and_its_last_line(jobs, code, cause, error, printed):
    ending = jobs.run(code=code)
    assert (ending["outcome"], ending["cause"], ending["exit_code"], ending["result"]) == ("failed", cause, 1, None)
    assert error in ending["error"] and "run_job.py" not in jobs.output
    assert [line for line in printed if line not in jobs.output] == []


EXITS = {
    "sys.exit(3)": ("import sys\nsys.exit(3)", 3, "The process exited with 3"),
    "an exit with a text": ("import sys\nsys.exit('gone')", 1, "The process exited with 1: gone"),
    "a crash": ("import os\nos.abort()", 134, "The process was killed by SIGABRT"),
}


@pytest.mark.parametrize(("code", "exit_code", "error"), EXITS.values(), ids=EXITS)
def test_code_that_exits_keeps_its_exit_code(jobs, code, exit_code, error):
    ending = jobs.run(code=code)
    assert (ending["outcome"], ending["cause"], ending["exit_code"]) == ("failed", "exit", exit_code)
    assert ending["error"].startswith(error)


def test_a_result_of_256_kib_is_in_the_document_and_a_longer_result_in_the_bucket(jobs):
    ending = jobs.run(code="result = 'é' * 131072")
    assert (len(ending["result"].encode()), ending["result_object"]) == (262_144, None)
    ending = jobs.run(code="result = 'é' * 131072 + 'x'")
    assert (ending["result"], ending["result_object"]) == (None, f"{FOLDER}result.txt")
    assert jobs.storage.data(BUCKET, f"{FOLDER}result.txt") == ("é" * 131072 + "x").encode()


def test_a_result_over_the_file_limit_fails_with_its_cause(jobs):
    ending = jobs.run(code="result = 'x' * 60_000_000", limits={"file_gb": 0.05})
    assert (ending["outcome"], ending["cause"]) == ("failed", "result")
    assert "File too large" in ending["error"]


def test_code_without_chips_fails_with_the_error_text_of_the_old_job_service(jobs, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    jobs.write_jax("def devices():\n    raise RuntimeError('no chips')\n")
    ending = jobs.run(code="result = 1")
    assert (ending["outcome"], ending["cause"]) == ("failed", "tpu")
    assert ending["error"] == "TPU not available: RuntimeError: no chips"


def test_an_environment_without_jax_or_libtpu_is_a_fault_of_the_setup(jobs, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    for start, error in (
        ("import a_module_that_is_missing\n", "Failed to import JAX: ModuleNotFoundError"),
        ("def devices():\n    raise RuntimeError('Failed to open libtpu.so: no such file')\n", "JAX finds no libtpu"),
    ):
        jobs.write_jax(start)
        ending = jobs.run(code="result = 1")
        assert (ending["outcome"], ending["cause"]) == ("failed", "setup") and error in ending["error"]


def test_a_chip_that_another_process_holds_is_a_fault_of_the_host(jobs, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    held = "ABORTED: The TPU is already in use by process with pid 42. Not attempting to load libtpu.so"
    jobs.write_jax(f"def devices():\n    raise RuntimeError({held!r})\n")
    ending = jobs.run(code="result = 1")
    assert (ending["cause"], ending["error"]) == ("tpu", f"TPU not available: RuntimeError: {held}")
