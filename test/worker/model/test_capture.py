"""Vectors that come back from the device: of the selected tokens, in the stored dtype, the same from every row."""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from build import TINY_CONFIG
from device_rows import MAX_LENGTH, SITES, a_sample, relative, rows_of, run, some_samples
from gleaner_worker.architecture.sites import STORED
from gleaner_worker.model.program import capture
from gleaner_worker.model.program.capture import _pooled

pytestmark = pytest.mark.slow

LAYERS = range(TINY_CONFIG["num_hidden_layers"])


def test_bf16_results_are_stored_as_they_were_rounded(capture_models):
    """XLA may keep more digits than bf16 between two operations: then two sites would disagree on a number."""
    host = run(capture_models(compute_dtype="bf16"), some_samples([20]))
    for site in SITES:
        rows = rows_of(host, site)
        np.testing.assert_array_equal(rows, rows.astype(ml_dtypes.bfloat16).astype(np.float32), err_msg=site)
    np.testing.assert_array_equal(rows_of(host, "resid_pre")[1:], rows_of(host, "resid_post")[:-1])


SELECTIONS = [
    # tokens, exclude_special, and the selected positions in samples of 20 and 7 tokens
    ("all", False, (None, None)),
    ("all", True, ([0, 2, 3, 18], [1])),
    ("last", False, ([19], [6])),
    ("2:6", False, ([2, 3, 4, 5], [2, 3, 4, 5])),
    ("-3:", False, ([17, 18, 19], [4, 5, 6])),
    ("1::5", False, ([1, 6, 11, 16], [1, 6])),
    ((3, -1, 0), False, ([3, 19, 0], [3, 6, 0])),
    ("mean", False, (None, None)),
    ("mean", True, ([0, 2, 3, 18], [1])),
    ("max", True, ([0, 2, 3, 18], [1])),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("tokens, exclude_special, positions", SELECTIONS)
def test_stored_rows_belong_to_the_selected_positions_in_order(capture_models, tokens, exclude_special, positions):
    plain = some_samples([20, 7])
    sites = [*SITES, "top_logprobs", "loss"]  # logits are computed for the selected positions alone
    everything = run(capture_models(sites=sites), plain)
    tokens = tokens if isinstance(tokens, str) else list(tokens)
    samples = [a_sample(s.token_ids, p) for s, p in zip(plain, positions, strict=True)]
    host = run(capture_models(sites=sites, tokens=tokens, exclude_special=exclude_special), samples)
    for b, chosen in enumerate(positions):
        for site in sites:
            expected = rows_of(everything, site, b)
            expected = expected if chosen is None else expected[:, chosen]
            if tokens in ("mean", "max"):
                expected = getattr(expected.astype(np.float64), tokens)(axis=1, keepdims=True)
            found = rows_of(host, site, b)
            assert found.shape == expected.shape
            assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected), site
    assert list(host.counts) == [rows_of(host, "resid_post", b).shape[1] for b in range(2)]


def test_each_pool_has_the_mean_or_the_largest_values_of_its_picked_tokens(monkeypatch):
    rng, size = np.random.default_rng(0), 64
    x, picked = rng.standard_normal((2, size, 3)).astype(np.float32), rng.random((2, size)) < 0.8
    pools = np.sort(rng.integers(0, size + 1, (2, 20, 2)), axis=2).astype(np.int32)
    pools[0, 0], picked[0, :2] = (0, size), True
    x[1, size // 2] = np.nan, np.inf, -np.inf
    maxima, means = np.asarray(jax.jit(partial(_pooled, jnp.maximum, -np.inf))(x, picked, pools)), []
    for most in (20 * size, 20 * size - 1):  # by a product, and by a tree
        monkeypatch.setattr(capture, "_PRODUCT_PAIRS", most)
        means.append(np.asarray(jax.jit(lambda *of: capture._means(*of))(x, picked, pools)))
    for row, number in np.ndindex(2, 20):
        begin, end = pools[row, number]
        values = x[row, begin:end][picked[row, begin:end]]
        if not len(values):
            continue
        np.testing.assert_array_equal(maxima[row, number], values.max(axis=0))
        for found in means:
            if np.isfinite(values).all():
                np.testing.assert_allclose(found[row, number], values.mean(axis=0), rtol=1e-5, atol=1e-6)
            else:
                assert not np.isfinite(found[row, number]).any()


@pytest.mark.sample(1)
@pytest.mark.parametrize("tokens", ["all", "mean"])
@pytest.mark.parametrize("dtype, eps", [("bf16", 2**-8), ("fp16", 2**-11), ("fp32", 1e-6)])
def test_activations_are_rounded_once_to_the_stored_dtype(capture_models, tokens, dtype, eps):
    sample = some_samples([20])
    exact = rows_of(run(capture_models(tokens=tokens), sample), "resid_post")
    model = capture_models(tokens=tokens, dtype=dtype)
    host = run(model, sample)
    assert host.rows("resid_post", 0).dtype == STORED[dtype]
    np.testing.assert_allclose(rows_of(host, "resid_post"), exact, rtol=eps, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["all", "mean"])
def test_int8_is_the_nearest_of_255_steps_up_to_the_largest_value_of_the_row(capture_models, tokens):
    sample = some_samples([20])
    exact = rows_of(run(capture_models(tokens=tokens), sample), "attn_out")
    host = run(capture_models(tokens=tokens, dtype="int8"), sample)
    q, scale = host.rows("attn_out", 0), host.scale("attn_out", 0)
    assert q.dtype == np.int8 and scale.dtype == np.float32 and scale.shape == q.shape[:2]
    np.testing.assert_allclose(scale, np.abs(exact).max(axis=2) / 127, rtol=1e-5)
    assert (np.abs(q).max(axis=2) == 127).all()
    assert (np.abs(q * scale[:, :, None] - exact) <= scale[:, :, None] * 0.5001).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
@pytest.mark.parametrize("tokens", ["all", "mean", "last"])
def test_statistics_cover_the_stored_values_without_padding(capture_models, tokens, dtype):
    samples = some_samples([20, 7, 31])
    if tokens == "last":
        samples = [a_sample(s.token_ids, [len(s.token_ids) - 1]) for s in samples]
    model = capture_models(tokens=tokens, dtype=dtype)
    host = run(model, samples)
    exact = run(capture_models(tokens=tokens), samples)
    for site in SITES:
        for index in LAYERS:
            rows = np.concatenate([rows_of(host, site, b)[index] for b in range(3)]).astype(np.float64)
            before = np.concatenate([rows_of(exact, site, b)[index] for b in range(3)]).astype(np.float64)
            expected = [rows.sum(), np.linalg.norm(rows, axis=1).sum(), np.abs(rows).max(), 0]
            if dtype == "int8":
                expected += [((rows - before) ** 2).sum(), (before**2).sum()]
            sums = host.host.sums(range(3))[site][index]
            found = dict(zip(model.capture.stats_columns(site), sums.sum(axis=0), strict=True)) | {
                "max_abs": sums[:, 2].max()
            }
            np.testing.assert_allclose(list(found.values()), expected, rtol=2e-5, atol=2e-3)


ROWS = st.lists(st.integers(1, MAX_LENGTH), min_size=1, max_size=16).filter(lambda lengths: sum(lengths) <= 128)


@pytest.mark.long
@settings(max_examples=25)
@given(lengths=ROWS, seed=st.integers(0, 1000), which=st.sampled_from([0, 1, 2, 3]))
def test_a_sample_has_the_same_rows_alone_and_packed_with_others(capture_models, lengths, seed, which):
    spec = [{}, {"tokens": "mean"}, {"tokens": "-2:"}, {"dtype": "int8"}][which]
    model = capture_models(**spec)
    samples = some_samples(lengths, seed)
    if which == 2:
        samples = [a_sample(s.token_ids, np.arange(len(s.token_ids))[-2:]) for s in samples]
    together = run(model, samples)
    for b, sample in enumerate(samples):
        alone = run(model, [sample])
        for site in SITES:
            # A value half way between two steps of int8 may be rounded either way.
            bound = 1e-5 if which < 3 else 1e-2
            assert relative(rows_of(together, site, b), rows_of(alone, site)) < bound, (site, b)


@pytest.mark.parametrize("scaled", [1, 9], ids=["by index", "one by one"])
def test_a_row_is_copied_to_its_places_in_a_shard_and_nowhere_else(capture_models, scaled):
    model = capture_models(dtype="int8")
    begins, counts, size = scaled * np.array([9, 1, 7]), scaled * np.array([3, 5, 2]), scaled * 14
    host = run(model, some_samples([*counts, 1]))
    rows, scale, _ = model.empty(size, 1)
    row_stats = {site: np.full((len(values), size, 2), 3.5, np.float32) for site, values in rows.items()}
    for site in SITES:
        rows[site][...], scale[site][...] = 77, 7.5
    host.host.store(range(3), rows, scale, row_stats, begins)
    rest = np.ones(size, bool)
    for b, (begin, count) in enumerate(zip(begins, counts, strict=True)):
        rest[begin : begin + count] = False
        for site in SITES:
            places = slice(begin, begin + count)
            np.testing.assert_array_equal(rows[site][:, places], host.rows(site, b))
            np.testing.assert_array_equal(scale[site][:, places], host.scale(site, b))
            np.testing.assert_allclose(
                row_stats[site][:, places, 0], np.linalg.norm(rows_of(host, site, b), axis=2), rtol=0.02
            )
    for site in SITES:
        assert (rows[site][:, rest] == 77).all()
        assert (scale[site][:, rest] == 7.5).all() and (row_stats[site][:, rest] == 3.5).all()
    assert model.row_bytes * size == sum(a.nbytes for a in [*rows.values(), *scale.values()])
