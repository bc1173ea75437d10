"""Fixtures of the worker's tests. Run with the environment that test/worker/requirements.lock describes:

ENV/bin/python -m pytest test/worker
"""

import json
import os
import shutil
import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/support")
import pytest

import environment
from agent_process import agent  # noqa: F401  (each fixture is beside the functions that tests use with it)
from device_rows import capture_models  # noqa: F401
from forked import forks  # noqa: F401
from git_server import server  # noqa: F401
from hub_models import files, hub  # noqa: F401
from hub_secret import secrets  # noqa: F401
from interruption import clean, interrupted  # noqa: F401
from job_attempts import jobs  # noqa: F401
from model_folders import model_folder  # noqa: F401
from pipeline_probes import no_thread_is_left  # noqa: F401
from sae_folders import sae_folder  # noqa: F401
from source_preparation import prepare  # noqa: F401
from startup_script import home  # noqa: F401
from stored_stream import extract  # noqa: F401
from stream_items import read_items  # noqa: F401
from verified_run import finds, finished_run, stored, verify  # noqa: F401


def pytest_unconfigure(config):
    if environment.CACHE.endswith(f"-{os.getpid()}"):  # a cache of GLEANER_TEST_CACHE stays for the next run
        shutil.rmtree(environment.CACHE, ignore_errors=True)


@pytest.fixture
def storage():
    from fake_storage import serving

    with serving() as fake:
        yield fake


@pytest.fixture
def cloud():
    """The metadata server and the worker-api of one VM."""
    from build import BUCKET
    from fake_cloud import FakeCloud

    fake = FakeCloud(bucket=BUCKET)
    yield fake
    fake.close()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A model that compiles fast."""
    from build import TINY_CONFIG
    from gleaner_worker.model.tiny import make_tiny_model

    folder = str(tmp_path_factory.mktemp("tiny"))
    make_tiny_model(folder, seed=1, config=TINY_CONFIG)
    _drop_chat_template(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tiny_folder):
    """tiny_models(**spec) -> the model. Specs that compile to the same program share it."""
    from dataclasses import replace

    from build import a_model, a_spec

    loaded = {}

    def get(**changes):
        spec = a_spec(model=tiny_folder, **changes)
        key = (spec.layers, spec.sites, spec.tokens, spec.exclude_special, spec.dtype, spec.compute_dtype)
        key += (spec.max_seq_length, spec.row_tokens, spec.new_tokens, spec.reductions, spec.moments)
        if key not in loaded:
            loaded[key] = a_model(spec)
        return replace(loaded[key], spec=spec)

    return get


def _drop_chat_template(folder: str) -> None:
    """Tests of records add their own template. Without a template, ARC tasks are plain prompts."""
    path = os.path.join(folder, "tokenizer_config.json")
    with open(path) as file:
        config = json.load(file)
    del config["chat_template"]
    with open(path, "w") as file:
        json.dump(config, file)
