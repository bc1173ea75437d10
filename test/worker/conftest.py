"""Fixtures of the worker's tests. Run with the environment that test/worker/requirements.lock describes:

ENV/bin/python -m pytest test/worker
"""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "worker-startup")
sys.path[:0] = [WORKER, HERE]
sys.dont_write_bytecode = True  # a bundle is made of that folder
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["PYTHONPATH"] = WORKER
# Subprocesses of the tests compile the same programs over and over.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"gleaner-test-jax-{os.getpid()}")
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import shutil

import hypothesis
import pytest

hypothesis.settings.register_profile("gleaner", deadline=None, derandomize=True)
hypothesis.settings.load_profile("gleaner")


def pytest_unconfigure(config):
    shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture
def storage(monkeypatch):
    from fake_storage import FakeStorage

    fake = FakeStorage()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
    yield fake
    fake.close()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A model small enough to compile in no time."""
    from build import TINY_CONFIG
    from gleaner_worker.tiny_model import make_tiny_model

    folder = str(tmp_path_factory.mktemp("tiny"))
    make_tiny_model(folder, seed=1, config=TINY_CONFIG)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tiny_folder):
    """tiny_models(**spec) -> the loaded model; loading is shared between tests."""
    from build import a_spec
    from gleaner_worker.model import load_model

    loaded = {}

    def get(**changes):
        key = repr(sorted(changes.items()))
        if key not in loaded:
            loaded[key] = load_model(a_spec(model=tiny_folder, **changes), "/nowhere", None)
        return loaded[key]

    return get
