"""The decoder compared with itself: in other rows and blocks, for other layers and sites, and its cost."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import golden_models as golden
from build import a_spec
from gleaner_worker.architecture.rope import Rope, inverse_frequencies
from gleaner_worker.architecture.sites import SITES
from gleaner_worker.failures import Failure
from gleaner_worker.model.program.attention import attend, first_key_blocks
from gleaner_worker.model.program.decoder import run_blocks
from gleaner_worker.model.program.mlp import by_expert
from gleaner_worker.model.program.norms import rms_norm
from gleaner_worker.model.program.rotate import rope_tables
from gleaner_worker.model.program.rows import Rows
from gleaner_worker.model.program.tuning import CPU, TPU
from gleaner_worker.spec.spec import resolve_layers

pytestmark = pytest.mark.slow


def random_ids(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 60, shape, dtype=np.int32)


def difference(a, b):
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def packed(ids, at, neighbours, length=256):
    """Rows with a sample at `at` among samples of other tokens, and padding after them."""
    token_ids = neighbours.integers(0, 60, (1, length), dtype=np.int32)
    token_ids[0, at : at + len(ids)] = ids
    segments = np.zeros((1, length), np.int32)
    segments[0, :at], segments[0, at : at + len(ids)] = 1, 2
    segments[0, at + len(ids) : length - 20] = 3
    positions = np.concatenate([np.arange(at), np.arange(len(ids)), np.arange(length - at - len(ids))])[None]
    return Rows(token_ids, segments, positions.astype(np.int32))


@partial(jax.jit, static_argnames=("config", "tuning"))
def resid_post(weights, rows, config, tuning=CPU):
    """[layers, R, T, D]"""
    capture = golden.capture(config, sites=("resid_post",))
    ((_, found),) = run_blocks(weights, rows, capture, lambda sites, *_: sites["resid_post"], tuning)
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "dtype", "limit"), [("gemma3-text", "fp32", 1e-5), ("qwen2", "bf16", 2e-2)])
def test_a_sample_is_the_same_alone_and_packed_with_any_neighbours(name, dtype, limit):
    config, weights = golden.config(name), golden.params(name, dtype)
    sample = random_ids((1, 100))
    alone = resid_post(weights, golden.one_sample_a_row(sample), config)[:, 0]
    for at in (0, 7, 130):
        rows = packed(sample[0], at, np.random.default_rng(at))
        among = resid_post(weights, rows, config)[:, 0, at : at + 100]
        assert difference(among, alone) <= limit
        # At one place of a row, its neighbours and the padding change no bit.
        others = packed(sample[0], at, np.random.default_rng(at + 1))
        assert np.array_equal(among, resid_post(weights, others, config)[:, 0, at : at + 100])


def test_each_sample_of_a_row_has_the_longrope_factors_of_its_own_length():
    config, weights = golden.config("phi3"), golden.params("phi3")
    long, short = golden.expected("phi3")["token_ids"], random_ids((40,))
    assert len(short) < config.ropes[0].original_positions < len(long)
    both = Rows(
        np.concatenate([short, long])[None],
        np.repeat([1, 2], [len(short), len(long)]).astype(np.int32)[None],
        np.concatenate([np.arange(len(short)), np.arange(len(long))]).astype(np.int32)[None],
    )
    found = resid_post(weights, both, config)[:, 0]
    assert difference(found[:, len(short) :: golden.STEP], golden.expected("phi3")["resid_post"]) <= 1e-5
    assert (
        difference(found[:, : len(short)], resid_post(weights, golden.one_sample_a_row(short[None]), config)[:, 0])
        <= 1e-5
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "dtype"), [("qwen3-moe", "bf16"), ("gemma2", "fp32"), ("qwen2", "bf16")])
def test_a_row_has_the_same_bits_at_each_position_of_a_step_with_any_other_rows(name, dtype):
    config, weights = golden.config(name), golden.params(name, dtype)
    row = packed(random_ids((100,)), 30, np.random.default_rng(0))
    results = []
    for position in range(4):
        rng = np.random.default_rng(position)
        step = [packed(random_ids((60,), position), 50, rng) if rng.random() < 0.7 else EMPTY for _ in range(4)]
        step[position] = row
        joined = Rows(*(np.concatenate(arrays) for arrays in zip(*step, strict=True)))
        results.append(resid_post(weights, joined, config, SMALL_BLOCKS)[:, position])
    assert all(np.array_equal(results[0], other) for other in results[1:])


SMALL_BLOCKS = replace(CPU, query_block=32)  # other rows begin their segments in other blocks
EMPTY = Rows(*(np.zeros((1, 256), np.int32) for _ in range(3)))


def plain_attention(q, k, v, segments, window, softcap, sinks=None):
    """All T x T scores at once, in numpy and fp64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("rnqh,rnsh->rnqs", q, k)
    if softcap is not None:
        scores = np.tanh(scores / softcap) * softcap
    distance = np.arange(q.shape[2])[:, None] - np.arange(q.shape[2])[None, :]
    seen = (distance >= 0) & (distance < window) & (segments[:, None, :, None] == segments[:, None, None, :])
    weights = np.where(seen, np.exp(scores), 0)
    sink = 0 if sinks is None else np.exp(sinks.astype(np.float64))[:, None, None]
    return np.einsum("rnqs,rnsh->rnqh", weights / (weights.sum(axis=-1, keepdims=True) + sink), v)


def some_segments(rng, length):
    """Four segments in each row, the last of one row without a token behind it, of the other with padding."""
    segments = np.sort(rng.integers(1, 5, (2, length)), axis=1).astype(np.int32)
    segments[1, length - length // 8 :] = 0
    return segments


@pytest.mark.sample(3)  # windows of one token, of a soft cap and without an end, each with the longest row
@pytest.mark.parametrize("length", [250, 288, 48, 1])
@pytest.mark.parametrize(
    ("window", "softcap"), [(1, None), (2, None), (200, 3.0), (130, None), (2**30, None), (512, 3.0)]
)
def test_attention_in_blocks_equals_full_attention_within_segments(length, window, softcap):
    check_attention(replace(CPU, query_block=48), length, window, softcap, head_dim=8, limit=2e-6)


@pytest.mark.sample(2)  # full attention, and a window with a soft cap
@pytest.mark.parametrize(("window", "softcap"), [(512, None), (1, None), (200, 3.0), (130, None)])
def test_the_kernel_for_tpus_equals_full_attention_within_segments(window, softcap):
    """The kernel of JAX, interpreted on the CPU."""
    check_attention(replace(TPU, interpret=True), 256, window, softcap, head_dim=64, limit=2e-5, heads=4)


def check_attention(tuning, length, window, softcap, head_dim, limit, heads=6):
    """Rows of a window have sinks too."""
    sinks = np.resize(np.float32([-30, 0, 3, 30]), heads) if window < length else None
    rng = np.random.default_rng(length)
    q = rng.standard_normal((2, heads, length, head_dim), dtype=np.float32) / 3
    k, v = rng.standard_normal((2, 2, 2, length, head_dim), dtype=np.float32)
    segments = some_segments(rng, length)
    with jax.default_matmul_precision("highest"):
        got = attend(q, k, v, segments, sinks, window=window, softcap=softcap, tuning=tuning)
    full = plain_attention(q, k, v, segments, window, softcap, sinks)
    assert np.isfinite(got).all()
    is_sample = segments[:, None, :, None] > 0
    assert difference(got * is_sample, full * is_sample) < limit


def products(jaxpr):
    """The multiplications in the matrix products of a program. Scans count every pass; of branches, the largest."""
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


def cost(name, layers, sites):
    config, weights = golden.config(name), golden.params(name)
    rows = golden.one_sample_a_row(np.zeros((1, 128), np.int32))
    capture = golden.capture(config, layers, sites)

    def found():
        return [sites for _, sites in run_blocks(weights, rows, capture, lambda found, *_: found, CPU)]

    return products(jax.make_jaxpr(found)().jaxpr)


@pytest.mark.parametrize("name", ["qwen2", pytest.param("gemma3-text", marks=pytest.mark.long)])
def test_the_cost_grows_with_the_deepest_requested_layer(name):
    per_layer = cost(name, (0,), ("resid_post",))
    assert per_layer > 0
    for layer in (1, golden.config(name).num_layers - 1):
        assert cost(name, (layer,), ("resid_post",)) == (layer + 1) * per_layer
        assert cost(name, tuple(range(layer + 1)), SITES[:5]) == (layer + 1) * per_layer


def test_attention_begins_with_the_first_block_of_keys_that_a_query_can_see():
    one = np.ones((2, 512), np.int32)
    assert first_key_blocks(one, 2**30, 128).tolist() == [0, 0, 0, 0]
    assert first_key_blocks(one, 128, 128).tolist() == [0, 0, 1, 2]
    assert first_key_blocks(one, 1, 128).tolist() == [0, 1, 2, 3]
    short = np.repeat(np.arange(1, 9, dtype=np.int32), 64)[None]
    assert first_key_blocks(short, 2**30, 128).tolist() == [0, 1, 2, 3]
    assert first_key_blocks(np.concatenate([short, one[:1]]), 2**30, 128).tolist() == [0, 0, 0, 0]
    padded = np.where(np.arange(512) < 150, one[:1], 0)
    assert first_key_blocks(padded, 2**30, 128).tolist() == [0, 0, 2, 3]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("site", "share"),
    [("resid_pre", 0), ("resid_mid", 0.85), ("attn_out", 0.85), ("q", 0.3), ("mlp_out", 1), ("resid_post", 1)],
)
def test_work_after_the_requested_site_of_the_deepest_layer_is_skipped(site, share):
    """Measured in the compiled program, after XLA has dropped unused results."""
    config, weights = golden.config("qwen2"), golden.params("qwen2")
    rows = golden.one_sample_a_row(np.zeros((1, 128), np.int32))

    def flops(site):
        capture = golden.capture(config, (0,), (site,))
        function = jax.jit(
            lambda weights: [found for _, found in run_blocks(weights, rows, capture, lambda found, *_: found, CPU)]
        )
        return function.lower(weights).compile().cost_analysis().get("flops", 0)

    assert flops(site) <= share * flops("resid_post") * 1.001 + 10_000
    assert share < 1 or flops(site) > 0.99 * flops("resid_post")


@pytest.mark.long
@pytest.mark.parametrize("sites", [("resid_pre",), ("resid_mid", "attn_out"), ("resid_pre", "mlp_out")])
@pytest.mark.parametrize("layers", [(0,), (1,), (0, 2), (0, 2, 4, 6)])
def test_a_site_has_the_same_values_with_and_without_other_sites(sites, layers):
    name = "gemma3-text"
    config, weights, ids = golden.config(name), golden.params(name), golden.expected(name)["token_ids"][None]
    with jax.default_matmul_precision("highest"):
        got = golden.run(weights, ids, golden.capture(config, layers, sites))
    for (site, layer), values in got.items():
        assert difference(values[0, :: golden.STEP], golden.expected(name)[site][layer]) <= 1e-5


@pytest.mark.long
def test_bf16_weights_are_accepted_as_16_bit_integers():
    config, weights = golden.config("mistral"), golden.params("mistral", "bf16")
    bits = weights | {"blocks": {name: stack.view(np.uint16) for name, stack in weights["blocks"].items()}}
    rows = golden.one_sample_a_row(random_ids((8, 100)))
    got, wanted = (resid_post(given, rows, config) for given in (bits, weights))
    assert got.dtype == wanted.dtype == np.dtype("bfloat16")
    assert difference(got, wanted) < 1e-2


def test_rope_tables_are_exact_at_long_positions_and_end_at_the_requested_length():
    rope = Rope("llama3", 500_000.0, 8.0, 8192, 1.0, 4.0)
    cos, sin = rope_tables((rope,), 128, 131_072)
    assert cos.shape == (1, 131_072, 64)
    # Positions, frequencies and their products are fp32, as in transformers.
    places = np.arange(131_071, -1, -61)
    angle = (places.astype(np.float32)[:, None] * inverse_frequencies(rope, 128)).astype(np.float64)
    assert np.abs(np.asarray(cos[0])[places] - np.cos(angle)).max() < 1e-5
    assert np.abs(np.asarray(sin[0])[places] - np.sin(angle)).max() < 1e-5
    assert rope_tables((rope,), 128, 32)[0].shape == (1, 32, 64)


def test_a_norm_rounds_before_or_after_its_weight_as_the_config_says():
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
    assert (rms_norm(x, w, config) != first).mean() < 0.1 * different
    assert (rms_norm(x, w, replace(config, norm_rounds_last=True)) != last).mean() < 0.1 * different


@pytest.mark.parametrize(("layers", "expected"), [("all", (0, 1, 2)), ("0-1", (0, 1)), ([2, 0, 2], (0, 2))])
def test_layers_are_chosen_in_each_form_of_the_spec(layers, expected):
    assert resolve_layers(a_spec(layers=layers), 3) == expected


@pytest.mark.parametrize("layers", ["0-3", [3], "2-1"])
def test_layers_that_the_model_lacks_are_an_error(layers):
    with pytest.raises(Failure, match="it has layers 0 to 2"):
        resolve_layers(a_spec(layers=layers), 3)


@pytest.mark.parametrize("is_down", [False, True])
def test_the_kernel_for_experts_reads_the_experts_of_its_layer_alone(is_down):
    """The kernel of JAX, interpreted on the CPU. Experts without a row cost no tile, and the weights of other layers
    are no numbers, so any that is read shows."""
    layers, experts, wide, deep = 3, 6, 24, 40
    rng = np.random.default_rng(0)
    stack = np.full((layers, experts, wide, deep), np.nan, np.float32)
    stack[1] = rng.standard_normal((experts, wide, deep))
    sizes = np.int32([0, 70, 0, 25, 1, 0])
    rows = rng.standard_normal((sizes.sum(), wide if is_down else deep), dtype=np.float32)

    def product(rows, stack, place, sizes):
        return by_expert(rows, stack, place, sizes, is_down, replace(TPU, interpret=True))

    given = rows, stack, np.int32(1), sizes
    weights = stack[1] if is_down else stack[1].swapaxes(1, 2)
    expected = np.concatenate([part @ weights[e] for e, part in enumerate(np.split(rows, np.cumsum(sizes)[:-1]))])
    assert difference(jax.jit(product)(*given), expected) < 1e-5
    (call,) = (each for each in calls(jax.make_jaxpr(product)(*given).jaxpr) if each.primitive.name == "pallas_call")
    columns, _tiles, inner = call.params["grid_mapping"].grid
    assert (columns, inner) == (1, 1)


def calls(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in equation.params.values():
            yield from calls(getattr(inner, "jaxpr", inner)) if hasattr(getattr(inner, "jaxpr", inner), "eqns") else ()
