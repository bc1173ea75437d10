"""Runs to shuffle: `runs` is the fixture, and `ALL` has every format."""

import numpy as np
import pytest

import gleaner_reader
from stored_run import store_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """runs(**options of store_run) -> (run, its stored values), shared between tests."""
    made = {}

    def get(**options):
        key = repr(sorted(options.items()))
        if key not in made:
            stored = store_run(tmp_path_factory.mktemp("run"), **options)
            made[key] = (gleaner_reader.open(stored.folder), stored)
        return made[key]

    return get


def as_rows(batches):
    return [np.asarray(batch, np.float32) for batch in batches]


def as_set(rows):
    return {row.tobytes() for row in rows}


ALL = [
    {"file_format": "safetensors", "dtype": "bf16"},
    {"file_format": "safetensors", "dtype": "int8"},
    {"file_format": "safetensors.zst", "dtype": "fp16"},
    {"file_format": "pkl.gz", "dtype": "fp32"},
]
