"""The decoder compared with itself: in other batches and blocks, for other layers and sites, and its cost."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import golden_models as golden
from gleaner_worker.failures import Failure
from gleaner_worker.model import attention
from gleaner_worker.model.attention import attend
from gleaner_worker.model.decoder import SITES, _rms_norm, resid_post, run_blocks
from gleaner_worker.model.rope import Rope, inverse_frequencies
from gleaner_worker.model.rotate import rope_tables
from gleaner_worker.spec import parse_spec, resolve_layers

pytestmark = pytest.mark.slow


def random_ids(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 60, shape, dtype=np.int32)


def difference(a, b):
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "dtype", "limit"), [("gemma3-text", "fp32", 1e-5), ("qwen2", "bf16", 2e-2)])
def test_a_sample_is_the_same_in_any_batch_with_any_neighbours(name, dtype, limit):
    config, weights = golden.config(name), golden.params(name, dtype)
    layers = tuple(range(config.num_layers))
    sample = random_ids((1, 100))
    alone = np.asarray(resid_post(weights, sample, config, layers))[:, 0]
    for height, width, row in ((4, 128, 2), (3, 256, 0)):
        batch = random_ids((height, width), seed=row)
        batch[row, :100] = sample
        among = np.asarray(resid_post(weights, batch, config, layers))[:, row, :100]
        assert difference(among, alone) <= limit
        # In one shape, neither the other rows nor the padding change any bit.
        others = random_ids((height, width), seed=row + 1)
        others[row, :100] = sample
        assert np.array_equal(among, np.asarray(resid_post(weights, others, config, layers))[:, row, :100])


def plain_attention(q, k, v, window, scale, softcap):
    """All T x T scores at once, in numpy and fp64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("bqkgh,bskh->bkgqs", q, k) * scale
    if softcap is not None:
        scores = np.tanh(scores / softcap) * softcap
    distance = np.arange(q.shape[1])[:, None] - np.arange(q.shape[1])[None, :]
    weights = np.where((distance >= 0) & (distance < window), np.exp(scores), 0)
    return np.einsum("bkgqs,bskh->bqkgh", weights / weights.sum(axis=-1, keepdims=True), v)


@pytest.mark.sample(2)
@pytest.mark.parametrize("length", [1, 50, 300])
@pytest.mark.parametrize(("window", "softcap"), [(1, None), (2, None), (130, None), (200, 3.0), (2**30, None)])
def test_attention_in_blocks_that_skip_keys_equals_full_attention(monkeypatch, length, window, softcap):
    monkeypatch.setattr(attention, "_QUERY_BLOCK", {"cpu": 48})
    rng = np.random.default_rng(length)
    q = rng.standard_normal((2, length, 2, 3, 8), dtype=np.float32)
    k, v = rng.standard_normal((2, 2, length, 2, 8), dtype=np.float32)
    with jax.default_matmul_precision("highest"):
        got = jax.jit(attend, static_argnums=(3, 4, 5))(q, k, v, window, 0.3, softcap)
    assert difference(got, plain_attention(q, k, v, window, 0.3, softcap)) < 2e-6


def products(jaxpr):
    """The multiplications in the products of a program: scans count as often as they run, branches as the dearest."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracting, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += np.prod(equation.outvars[0].aval.shape) * np.prod([shape[axis] for axis in contracting])
        inner = [getattr(p, "jaxpr", p) for p in equation.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        total += sum(map(products, inner)) * equation.params.get("length", 1)
        total += max((products(branch.jaxpr) for branch in equation.params.get("branches", ())), default=0)
    return int(total)


def cost(name, layers, sites, length=128):
    config, weights = golden.config(name), golden.params(name)
    ids = np.zeros((1, length), np.int32)

    def emit(every_site):
        return {site: every_site[site] for site in sites}

    return products(jax.make_jaxpr(lambda: run_blocks(weights, ids, config, layers, emit))().jaxpr)


@pytest.mark.parametrize("name", ["qwen2", "gemma3-text"])
def test_time_grows_with_the_deepest_requested_layer(name):
    per_layer = cost(name, (0,), ("resid_post",))
    assert per_layer > 0
    for layer in range(golden.config(name).num_layers):
        assert cost(name, (layer,), ("resid_post",)) == (layer + 1) * per_layer
        assert cost(name, tuple(range(layer + 1)), SITES) == (layer + 1) * per_layer


@pytest.mark.long
def test_windows_make_long_sequences_cheaper():
    config = golden.config("mistral")
    assert config.windows == (24,) * 3
    assert cost("mistral", (2,), ("resid_post",), 4096) < 0.3 * cost("llama2", (2,), ("resid_post",), 4096)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("site", "share"), [("resid_pre", 0), ("resid_mid", 0.85), ("attn_out", 0.85), ("mlp_out", 1), ("resid_post", 1)]
)
def test_work_after_the_requested_site_of_the_deepest_layer_is_skipped(site, share):
    """Measured in the compiled program, after XLA has dropped unused results."""
    config, weights, ids = golden.config("qwen2"), golden.params("qwen2"), np.zeros((1, 128), np.int32)

    def flops(site):
        function = jax.jit(lambda weights: run_blocks(weights, ids, config, (0,), lambda sites: sites[site]))
        return function.lower(weights).compile().cost_analysis().get("flops", 0)

    assert flops(site) <= share * flops("resid_post") * 1.001 + 10_000
    assert share < 1 or flops(site) > 0.99 * flops("resid_post")


@pytest.mark.long
@pytest.mark.parametrize("sites", [("resid_pre",), ("resid_mid", "attn_out"), ("resid_pre", "mlp_out")])
@pytest.mark.parametrize("layers", [(0,), (1,), (0, 2), (0, 2, 4, 6)])
def test_a_site_is_the_same_with_and_without_other_sites(sites, layers):
    name = "gemma3-text"
    config, weights, ids = golden.config(name), golden.params(name), golden.expected(name)["token_ids"][None]
    with jax.default_matmul_precision("highest"):
        got = run_blocks(weights, ids, config, layers, lambda all_: {s: all_[s] for s in sites})
    for site in sites:
        assert difference(got[site][:, 0], golden.expected(name)[site][list(layers)]) <= 1e-5


@pytest.mark.long
def test_bf16_weights_may_be_given_as_their_bits():
    config, weights, layers = golden.config("mistral"), golden.params("mistral", "bf16"), (0, 1, 2)
    bits = weights | {"blocks": {name: stack.view(np.uint16) for name, stack in weights["blocks"].items()}}
    ids = random_ids((8, 100))  # more rows than an MLP takes at a time on a CPU
    got, wanted = (np.asarray(resid_post(given, ids, config, layers)) for given in (bits, weights))
    assert got.dtype == wanted.dtype == np.dtype("bfloat16")
    assert difference(got, wanted) < 1e-2


def test_the_stream_is_the_sum_of_the_additions_of_blocks():
    config, weights = golden.config("gemma2"), golden.params("gemma2")
    got = golden.run(weights, random_ids((2, 64)), config, tuple(range(config.num_layers)))
    # Not bit by bit, because a compiler may add before it rounds.
    assert difference(got["resid_mid"], got["resid_pre"] + got["attn_out"]) < 1e-6
    assert difference(got["resid_post"], got["resid_mid"] + got["mlp_out"]) < 1e-6
    assert difference(got["resid_pre"][1:], got["resid_post"][:-1]) < 1e-6


def test_rotations_are_exact_at_long_positions_and_made_for_the_present_length_alone():
    rope = Rope("llama3", 500_000.0, 8.0, 8192, 1.0, 4.0)
    cos, sin = rope_tables((rope,), 128, 131_072)
    assert cos.shape == (1, 131_072, 64)
    # Positions, frequencies and their products are fp32, as in transformers.
    angle = (np.arange(131_072, dtype=np.float32)[:, None] * inverse_frequencies(rope, 128)).astype(np.float64)
    assert np.abs(np.asarray(cos[0]) - np.cos(angle)).max() < 1e-5
    assert np.abs(np.asarray(sin[0]) - np.sin(angle)).max() < 1e-5
    assert rope_tables((rope,), 128, 32)[0].shape == (1, 32, 64)


def test_families_round_norms_in_their_own_order():
    rng = np.random.default_rng(0)
    x, w = jnp.asarray(rng.standard_normal((4, 256)), jnp.bfloat16), jnp.asarray(rng.standard_normal(256), jnp.bfloat16)
    x32, w32 = np.asarray(x, np.float32), np.asarray(w, np.float32)
    unit = x32 / np.sqrt((x32**2).mean(axis=-1, keepdims=True) + 1e-6)
    config = replace(golden.config("qwen2"), norm_eps=1e-6)
    first = (jnp.asarray(unit, jnp.bfloat16).astype(jnp.float32) * w32).astype(jnp.bfloat16)
    last = jnp.asarray(unit * w32, jnp.bfloat16)
    different = (first != last).mean()
    assert different > 0.1
    # Rows that are equal either way may differ in the last bit, by the method for 1 / sqrt().
    assert (_rms_norm(x, w, config) != first).mean() < 0.1 * different
    assert (_rms_norm(x, w, replace(config, norm_rounds_last=True)) != last).mean() < 0.1 * different


def a_spec(layers):
    return parse_spec(
        {
            "model": "m",
            "layers": layers,
            "dtype": "bf16",
            "format": "safetensors",
            "shard_size_gb": 1.0,
            "max_seq_length": 512,
            "over_long": "reject",
        }
    )


@pytest.mark.parametrize(("layers", "expected"), [("all", (0, 1, 2)), ("0-1", (0, 1)), ([2, 0, 2], (0, 2))])
def test_layers_are_chosen_in_each_form_of_the_spec(layers, expected):
    assert resolve_layers(a_spec(layers), 3) == expected


@pytest.mark.parametrize("layers", ["0-3", [3], "2-1"])
def test_missing_layers_are_an_error(layers):
    with pytest.raises(Failure, match="it has layers 0 to 2"):
        resolve_layers(a_spec(layers), 3)
