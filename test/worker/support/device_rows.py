"""Rows that the tiny model computes: samples, and the vectors that come back."""

from types import SimpleNamespace

import numpy as np
import pytest

from build import TINY_CONFIG
from gleaner_worker.architecture.sites import SITES as EVERY_SITE

MAX_LENGTH = 64
SITES = EVERY_SITE[:5]  # of the stream and its sums
VOCAB, D = TINY_CONFIG["vocab_size"], TINY_CONFIG["hidden_size"]


@pytest.fixture(scope="module")
def capture_models(tiny_models):
    def get(**spec):
        given = {
            "max_seq_length": MAX_LENGTH,
            "row_tokens": 128,
            "compute_dtype": "fp32",
            "dtype": "fp32",
            "sites": list(SITES),
        }
        return tiny_models(**(given | spec))

    return get


def a_sample(ids, positions=None, pools=None):
    chosen = None if positions is None else np.asarray(positions, np.int32)
    return SimpleNamespace(token_ids=np.asarray(ids, np.int32), positions=chosen, pools=pools)


def some_samples(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [a_sample(rng.integers(0, VOCAB, length)) for length in lengths]


class ComputedRow:
    """One row of samples, computed alone."""

    def __init__(self, model, samples):
        (self.host,) = model.start([samples]).collect()
        self.counts = self.host.counts
        self._stored = [stored_of(model, self.host, b) for b in range(len(samples))]

    def rows(self, site, b=0):
        """[L, vectors, D] as stored."""
        return self._stored[b][0][site]

    def scale(self, site, b=0):
        return self._stored[b][1][site]


def stored_of(model, host, b):
    """(rows, scale) of sample b of a computed row, by site."""
    rows, scale, _ = model.empty(int(host.counts[b]), 1)
    host.store([b], rows, scale, {}, np.array([0]))
    return rows, scale


def run(model, samples):
    return ComputedRow(model, samples)


def rows_of(computed, site, b=0):
    """fp32 [L, vectors, D], from vectors of any dtype."""
    rows = computed.rows(site, b).astype(np.float32)
    return rows * computed.scale(site, b)[:, :, None] if computed.rows(site, b).dtype == np.int8 else rows


def relative(found, expected):
    return np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)
