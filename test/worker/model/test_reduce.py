"""The device's reductions: the largest features in one order, on any split, in any ranges of layers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import golden_models as golden
from environment import with_devices
from gleaner_worker.architecture.reductions import Encoder, Reduction, places_of_ids
from gleaner_worker.architecture.sites import Capture
from gleaner_worker.model.program.capture import compute_step
from gleaner_worker.model.program.decoder import layer_ranges
from gleaner_worker.model.program.reduce import largest, reduced
from gleaner_worker.model.program.split import Split
from gleaner_worker.model.program.tuning import CPU

pytestmark = pytest.mark.slow

KINDS = {  # activations of so many features, from random numbers of 0 to 1
    "ties": lambda x: np.round(np.maximum(x - 0.5, 0) * 8),
    "all different": lambda x: x,
    "all equal": lambda x: np.ones_like(x),
    "few active": lambda x: np.maximum(x - 0.99, 0),
    "none active": lambda x: np.zeros_like(x),
    "all of the largest in one group": lambda x: x + 2 * (np.arange(x.shape[1]) // 16 == x.shape[1] // 16 - 1),
    "one of the largest in each group": lambda x: x + 2 * (np.arange(x.shape[1]) % 16 == 5),
    "from the least to the greatest": lambda x: np.where(x < 0.5, 1e-45, 3e38),
}


KERNEL = replace(CPU, gathers=True, interpret=True)


@pytest.mark.parametrize(
    ("features", "k", "tuning"),
    [(128, 1, CPU), (128, 1024, CPU), (1024, 1024, CPU), (2048, 64, CPU), (4096, 150, KERNEL)],
)
def test_the_largest_are_those_of_a_full_sort_by_value_and_id(features, k, tuning):
    x, run = np.random.default_rng(features).random((16, features)), jax.jit(largest, static_argnums=(1, 2))
    for kind, make in KINDS.items():
        values = make(x).astype(np.float32)
        bits, ids = map(np.asarray, run(values[:, places_of_ids(features, 1)], k, tuning))
        order = np.lexsort((np.broadcast_to(np.arange(features), values.shape), -values))[:, :k]
        assert np.array_equal(ids, order), kind
        assert np.array_equal(bits.view(np.float32), np.take_along_axis(values, order, axis=1)), kind


def test_zeros_of_either_sign_and_padding_are_no_features_and_a_broken_vector_is_seen():
    bias = np.array([1, -0.0, 0.0, 3, -1e-30, 1e-30, 3, *[-1] * 121], np.float32)
    params = {"encode": np.zeros((1, 128, 4), np.float32), "b": bias[None, places_of_ids(128, 1)]}
    reduction = Reduction("s", "resid_post", (0,), 4, 6, "fp32", Encoder(20, "standard"))
    x = jnp.ones((1, 2, 4)).at[0, 1, 2].set(np.inf)
    values, ids, active = reduced(x, reduction, {"reductions": {"s": params}}, 0, (0,), CPU, Split()).values()
    assert (ids[0, 0].tolist(), active[0, 0].tolist()) == ([3, 6, 0, 5, -1, -1], [4])
    assert values[0, 0].tolist() == [3, 3, 1, np.float32(1e-30), 0, 0]
    assert np.isnan(values[0, 1]).all()


def test_devices_that_share_the_weights_give_the_bits_of_one_device(forks):
    ended = forks.run("reduced_devices:check_split", environment=with_devices(8))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("layers", "dense", "ranges"), [((0, 2, 4, 6), 5, 1), (tuple(range(7)), 3, 4)], ids=str)
def test_reductions_of_some_layers_beside_dense_rows_of_another_are_those_of_dense_rows(layers, dense, ranges):
    name, rng = "gemma3-text", np.random.default_rng(1)
    config, width = golden.config(name), golden.config(name).d_model
    rows = golden.one_sample_a_row(golden.expected(name)["token_ids"][None])
    weights, bias = rng.normal(size=(7, 128, width)).astype(np.float32), rng.normal(size=(7, 128)).astype(np.float32)
    directions, places = rng.normal(size=(len(layers), 3, width)).astype(np.float32), places_of_ids(128, 1)
    encoder = {"encode": weights[list(layers)][:, places], "b": bias[list(layers)][:, places]}
    params = golden.params(name) | {"reductions": {"scope": encoder, "probe": {"directions": directions}}}
    scope = Reduction("scope", "resid_post", layers, width, 8, "fp32", Encoder(128, "standard"))
    probe = Reduction("probe", "mlp_out", layers, width, 3, "fp32")
    moments = (("resid_mid", (layers[-1],)),)
    few = Capture(config, (dense,), ("resid_post",), "all", "fp32", reductions=(scope, probe), moments=moments)
    every = Capture(config, tuple(range(7)), ("resid_post", "mlp_out", "resid_mid"), "all", "fp32")
    assert len(layer_ranges([few.at(layer) for layer in range(7)], 7)) == ranges

    def run(capture):
        run = jax.jit(lambda params: compute_step(params, rows, jnp.zeros((1, 1), jnp.int32), capture, CPU))
        with jax.default_matmul_precision("highest"):
            found = run(params)
        parts = ((f"{name} {part}", pieces) for part, each in found.items() for name, pieces in each.items())
        return {key: np.concatenate([np.asarray(piece)[:, 0] for piece in pieces]) for key, pieces in parts}

    def close(found, wanted):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)

    got, wanted = run(few), run(every)
    close(got["resid_post rows"][0], wanted["resid_post rows"][dense])
    for place, layer in enumerate(layers):
        hidden = np.maximum(wanted["resid_post rows"][layer] @ weights[layer].T + bias[layer], 0)
        order = np.argsort(-hidden, axis=1, kind="stable")[:, :8]
        assert np.array_equal(got["scope_ids rows"][place], order), layer
        close(got["scope rows"][place], np.take_along_axis(hidden, order, axis=1))
        assert np.array_equal(got["scope_active rows"][place][:, 0], (hidden > 0).sum(axis=1))
        close(got["probe rows"][place], wanted["mlp_out rows"][layer] @ directions[place].T)
    for part, power in (("sum", 1), ("squares", 2)):
        close(got[f"resid_mid {part}"][0, 0], (wanted["resid_mid rows"][layers[-1]] ** power).sum(axis=0))
