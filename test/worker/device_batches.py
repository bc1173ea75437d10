"""Batches that the tiny model computes: samples, and the rows that come back."""

from types import SimpleNamespace

import numpy as np
import pytest

from build import TINY_CONFIG
from gleaner_worker.batching import batch_height
from gleaner_worker.spec import SITES

MAX_LENGTH = 64
VOCAB, D = TINY_CONFIG["vocab_size"], TINY_CONFIG["hidden_size"]


@pytest.fixture(scope="module")
def capture_models(tiny_models):
    def get(**spec):
        given = {"max_seq_length": MAX_LENGTH, "compute_dtype": "fp32", "dtype": "fp32", "sites": list(SITES)}
        return tiny_models(**(given | spec))

    return get


def a_sample(ids, positions=None):
    return SimpleNamespace(
        token_ids=np.asarray(ids, np.int32), positions=None if positions is None else np.asarray(positions, np.int32)
    )


def some_samples(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [a_sample(rng.integers(0, VOCAB, length)) for length in lengths]


def run(model, samples, width=32):
    return model.start([samples], batch_height(width), width).collect()[0]


def rows_of(host, site, b=0):
    """fp32 [L, rows, D], from rows of any dtype."""
    rows = host.rows(site, b).astype(np.float32)
    return rows * host.scale(site, b)[:, :, None] if host.rows(site, b).dtype == np.int8 else rows


def relative(found, expected):
    return np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)
