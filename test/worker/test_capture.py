"""What comes back from the device: the rows chosen, in the dtype stored, the same from whatever batch."""

from types import SimpleNamespace

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from build import TINY_CONFIG, a_model, a_spec
from gleaner_worker.batching import batch_height
from gleaner_worker.failures import Failure
from gleaner_worker.model.row_selection import check_tokens, most_rows, stored_width
from gleaner_worker.spec import SITES

pytestmark = pytest.mark.slow

MAX_LENGTH = 64
LAYERS = range(TINY_CONFIG["num_hidden_layers"])
VOCAB, D = TINY_CONFIG["vocab_size"], TINY_CONFIG["hidden_size"]


@pytest.fixture(scope="module")
def models(tiny_models):
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
    """fp32 [L, rows, D], whatever is stored."""
    rows = host.rows(site, b).astype(np.float32)
    return rows * host.scale(site, b)[:, :, None] if host.rows(site, b).dtype == np.int8 else rows


def relative(found, expected):
    return np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)


def test_the_sites_of_a_block_add_up(models):
    host = run(models(), some_samples([20]))
    at = {site: rows_of(host, site) for site in SITES}
    np.testing.assert_array_equal(at["resid_pre"][1:], at["resid_post"][:-1])
    np.testing.assert_allclose(at["resid_mid"], at["resid_pre"] + at["attn_out"], atol=1e-6)
    np.testing.assert_allclose(at["resid_post"], at["resid_mid"] + at["mlp_out"], atol=1e-6)


def test_what_bf16_computed_is_stored_as_it_was_rounded(models):
    """XLA may keep more than bf16 between two operations: then two sites would disagree on one number."""
    host = run(models(compute_dtype="bf16"), some_samples([20]))
    for site in SITES:
        rows = rows_of(host, site)
        np.testing.assert_array_equal(rows, rows.astype(ml_dtypes.bfloat16).astype(np.float32), err_msg=site)
    np.testing.assert_array_equal(rows_of(host, "resid_pre")[1:], rows_of(host, "resid_post")[:-1])


SELECTIONS = [
    # tokens, exclude_special, and the positions of these in samples of 20 and 7 tokens
    ("all", False, (None, None)),
    ("all", True, ([0, 2, 3, 18], [1])),
    ("last", False, ([19], [6])),
    ("2:6", False, ([2, 3, 4, 5], [2, 3, 4, 5])),
    ("-3:", False, ([17, 18, 19], [4, 5, 6])),
    ("1::5", False, ([1, 6, 11, 16], [1, 6])),
    ((3, -1, 0), False, ([3, 19, 0], [3, 6, 0])),
    ("mean", False, (None, None)),
    ("mean", True, ([0, 2, 3, 18], [1])),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("tokens, exclude_special, positions", SELECTIONS)
def test_the_rows_are_those_of_the_positions_in_their_order(models, tokens, exclude_special, positions):
    plain = some_samples([20, 7])
    everything = run(models(), plain)
    tokens = tokens if isinstance(tokens, str) else list(tokens)
    samples = [a_sample(s.token_ids, p) for s, p in zip(plain, positions, strict=True)]
    host = run(models(tokens=tokens, exclude_special=exclude_special), samples)
    for b, chosen in enumerate(positions):
        for site in SITES:
            expected = rows_of(everything, site, b)
            expected = expected if chosen is None else expected[:, chosen]
            if tokens == "mean":
                expected = expected.astype(np.float64).mean(axis=1, keepdims=True)
            assert rows_of(host, site, b).shape == expected.shape
            assert relative(rows_of(host, site, b), expected) < 1e-6, site
    assert list(host.counts) == [rows_of(host, "resid_post", b).shape[1] for b in range(2)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("tokens", ["all", "mean"])
@pytest.mark.parametrize("dtype, eps", [("bf16", 2**-8), ("fp16", 2**-11), ("fp32", 1e-6)])
def test_floats_are_rounded_once(models, tokens, dtype, eps):
    sample = some_samples([20])
    exact = rows_of(run(models(tokens=tokens), sample), "resid_post")
    host = run(models(tokens=tokens, dtype=dtype, sites=["resid_post"]), sample)
    assert host.rows("resid_post", 0).dtype == models(tokens=tokens, dtype=dtype, sites=["resid_post"]).dtype
    np.testing.assert_allclose(rows_of(host, "resid_post"), exact, rtol=eps, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["all", "mean"])
def test_int8_is_the_nearest_of_255_steps_up_to_the_largest_value_of_the_row(models, tokens):
    sample = some_samples([20])
    exact = rows_of(run(models(tokens=tokens), sample), "attn_out")
    host = run(models(tokens=tokens, dtype="int8"), sample)
    q, scale = host.rows("attn_out", 0), host.scale("attn_out", 0)
    assert q.dtype == np.int8 and scale.dtype == np.float32 and scale.shape == q.shape[:2]
    np.testing.assert_allclose(scale, np.abs(exact).max(axis=2) / 127, rtol=1e-5)
    assert (np.abs(q).max(axis=2) == 127).all()
    assert (np.abs(q * scale[:, :, None] - exact) <= scale[:, :, None] * 0.5001).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
@pytest.mark.parametrize("tokens", ["all", "mean", "last"])
def test_the_stats_are_of_the_stored_values_of_the_real_rows_alone(models, tokens, dtype):
    samples = some_samples([20, 7, 31])
    if tokens == "last":
        samples = [a_sample(s.token_ids, [len(s.token_ids) - 1]) for s in samples]
    model = models(tokens=tokens, dtype=dtype)
    host = run(model, samples)
    exact = run(models(tokens=tokens), samples)
    for site in SITES:
        for index in LAYERS:
            rows = np.concatenate([rows_of(host, site, b)[index] for b in range(3)]).astype(np.float64)
            before = np.concatenate([rows_of(exact, site, b)[index] for b in range(3)]).astype(np.float64)
            expected = [rows.sum(), np.linalg.norm(rows, axis=1).sum(), np.abs(rows).max(), 0]
            if dtype == "int8":
                expected += [((rows - before) ** 2).sum(), (before**2).sum()]
            found = dict(zip(model.stats_columns, host.stats[site][index], strict=True))
            np.testing.assert_allclose(list(found.values()), expected, rtol=2e-5, atol=2e-3)


BATCHES = st.lists(st.integers(1, MAX_LENGTH), min_size=1, max_size=16)


@pytest.mark.long
@settings(max_examples=25)
@given(lengths=BATCHES, seed=st.integers(0, 1000), which=st.sampled_from([0, 1, 2, 3]))
def test_a_sample_is_the_same_alone_and_in_any_batch(models, lengths, seed, which):
    spec = [{}, {"tokens": "mean"}, {"tokens": "-2:"}, {"dtype": "int8"}][which]
    model = models(**spec)
    samples = some_samples(lengths, seed)
    if which == 2:
        samples = [a_sample(s.token_ids, np.arange(len(s.token_ids))[-2:]) for s in samples]
    together = run(model, samples, 64 if max(lengths) > 32 else 32)
    for b, sample in enumerate(samples):
        alone = run(model, [sample], 64 if len(sample.token_ids) > 32 else 32)
        for site in SITES:
            # A value half way between two steps of int8 may go either way.
            bound = 1e-5 if which < 3 else 1e-2
            assert relative(rows_of(together, site, b), rows_of(alone, site)) < bound, (site, b)


def test_a_batch_goes_to_its_places_in_a_shard_and_nowhere_else(models):
    model = models(dtype="int8")
    host = run(model, some_samples([3, 5, 2]))
    rows, scale = model.empty(14)
    for site in SITES:
        rows[site][...], scale[site][...] = 77, 7.5
    host.store(rows, scale, [9, 1, 7])
    for site in SITES:
        for b, (begin, count) in enumerate([(9, 3), (1, 5), (7, 2)]):
            np.testing.assert_array_equal(rows[site][:, begin : begin + count], host.rows(site, b))
            np.testing.assert_array_equal(scale[site][:, begin : begin + count], host.scale(site, b))
        rest = [0, 6, 12, 13]
        assert (rows[site][:, rest] == 77).all() and (scale[site][:, rest] == 7.5).all()
    assert model.row_bytes * 14 == sum(a.nbytes for a in [*rows.values(), *scale.values()])


def with_embedding(model, token, value):
    """The model, with every number of one token's embedding set to `value`."""
    embed = model.params["embed"]
    return SimpleNamespace(
        run=lambda samples: _start_with(model, {**model.params, "embed": embed.at[token].set(value)}, samples)
    )


def _start_with(model, params, samples):
    from dataclasses import replace

    return run(replace(model, params=params), samples)


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_found_where_it_begins(models, dtype, value):
    samples = [a_sample([1, 2, 3]), a_sample([4, 5, 9, 6]), a_sample([1, 9])]
    host = with_embedding(models(dtype=dtype), 9, value).run(samples)
    assert host.non_finite() == ("resid_pre", 0, 1, 2)  # in block 0, first in sample 1, in two rows
    assert host.stats["resid_pre"][:, 3].tolist()[0] == 2


def test_a_token_that_no_sample_has_spoils_none(models):
    """Token 0 fills the rows of a batch that no sample has; the padding of a sample is made of its own tokens, for it
    takes part in attention with a weight of 0, and 0 times an infinity is no number."""
    for tokens in ("all", "mean"):
        host = with_embedding(models(tokens=tokens), 0, np.inf).run([a_sample([1, 2, 3])])
        assert host.non_finite() is None
        assert np.isfinite(rows_of(host, "resid_post")).all()


def test_what_fp16_cannot_hold_is_not_finite(models):
    samples = [a_sample([1, 9])]
    assert with_embedding(models(dtype="bf16"), 9, 1e5).run(samples).non_finite() is None
    assert with_embedding(models(dtype="fp16"), 9, 1e5).run(samples).non_finite() == ("resid_pre", 0, 0, 1)


def test_a_row_of_zeros_is_zeros_in_int8(models):
    host = with_embedding(models(dtype="int8"), 9, 0.0).run([a_sample([9])])
    assert not host.rows("resid_pre", 0)[0].any() and host.non_finite() is None
    assert np.isfinite(host.stats["resid_pre"]).all()


@pytest.mark.parametrize(
    "tokens, length, most",
    [("0:16", 10, 10), ("0:16", 100, 16), ("-8:", 100, 8), ("::3", 10, 4), ("-8:4", 100, 4), ("8:4", 100, 0)],
)
def test_a_slice_takes_so_many_at_most(tokens, length, most):
    assert most_rows(tokens, length) == most
    assert stored_width(a_spec(tokens=tokens), length) == most


@pytest.mark.parametrize(
    "tokens, says",
    [
        ("8:4", "takes nothing"),
        ("600:", "takes nothing"),
        ([0, 512], "position 512 cannot exist: a sample has at most 512 tokens (0 to 511, or -512 to -1)"),
        ([-513, 600], "positions -513, 600 cannot exist"),
    ],
)
def test_tokens_that_no_sample_has_are_refused(tiny_folder, tokens, says):
    with pytest.raises(Failure) as failure:
        a_model(a_spec(model=tiny_folder, tokens=tokens, max_seq_length=512))
    assert failure.value.kind == "model" and says in failure.value.reason


def test_tokens_that_some_sample_may_have_are_accepted():
    for tokens in ("all", "last", "mean", "511:", "-600:", [511, -512], [0]):
        check_tokens(a_spec(tokens=tokens), 512)


def test_a_layer_that_does_not_exist_is_refused_with_the_range(tiny_folder):
    with pytest.raises(Failure, match="layers 0 to 2"):
        a_model(a_spec(model=tiny_folder, layers=[3]))


@pytest.mark.long
def test_only_the_layers_up_to_the_deepest_are_held(tiny_models):
    model = tiny_models(layers=[1], max_seq_length=32)
    assert {w.shape[0] for w in model.params["blocks"].values()} == {2}
    np.testing.assert_array_equal(
        run(model, some_samples([9])).rows("resid_post", 0)[0],
        run(tiny_models(max_seq_length=32), some_samples([9])).rows("resid_post", 0)[1],
    )
