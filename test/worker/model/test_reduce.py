"""The device's reductions: the largest features in one order, on any split, in any ranges of layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import golden_models as golden
from environment import with_devices
from gleaner_worker.architecture.reductions import Encoder, Reduction
from gleaner_worker.architecture.sites import Capture
from gleaner_worker.model.program.capture import compute_step
from gleaner_worker.model.program.decoder import layer_ranges
from gleaner_worker.model.program.reduce import largest, places_of_ids, reduce
from gleaner_worker.model.program.split import Split
from gleaner_worker.model.program.tuning import CPU

pytestmark = pytest.mark.slow

ROWS = 40
# Activations, of so many features.
KINDS = {
    "ties": lambda rng, F: np.round(np.maximum(rng.normal(size=(ROWS, F)), 0) * 3) / 3,
    "all different": lambda rng, F: rng.random((ROWS, F)),
    "all equal": lambda rng, F: np.ones((ROWS, F)),
    "few active": lambda rng, F: np.maximum(rng.normal(size=(ROWS, F)) - 2.5, 0),
    "none active": lambda rng, F: np.zeros((ROWS, F)),
    "all of the largest in one group": lambda rng, F: rng.random((ROWS, F)) + 2 * (np.arange(F) // 16 == F // 16 - 1),
    "one of the largest in each group": lambda rng, F: rng.random((ROWS, F)) + 2 * (np.arange(F) % 16 == 5),
    "from the least to the greatest": lambda rng, F: np.where(rng.random((ROWS, F)) < 0.5, 1e-45, 3e38),
}


@pytest.mark.parametrize(
    ("features", "k"), [(128, 1), (128, 1024), (1024, 1024), (2048, 64)], ids=lambda number: str(number)
)
def test_the_largest_are_those_of_a_full_sort_by_value_and_id(features, k):
    rng, run = np.random.default_rng(features), jax.jit(largest, static_argnums=1)
    for kind, make in KINDS.items():
        values = make(rng, features).astype(np.float32)
        bits, ids = map(np.asarray, run(values[:, places_of_ids(features, 1)], k))
        order = np.lexsort((np.broadcast_to(np.arange(features), values.shape), -values))[:, :k]
        assert np.array_equal(ids, order), kind
        assert np.array_equal(bits.view(np.float32), np.take_along_axis(values, order, axis=1)), kind


def test_zeros_of_either_sign_and_padding_are_no_features_and_a_broken_vector_is_seen():
    encoder = Encoder(20, "standard")
    bias = np.array([1, -0.0, 0.0, 3, -1e-30, 1e-30, 3, *[-1] * 121], np.float32)
    params = {"encode": np.zeros((1, 128, 4), np.float32), "b": bias[None, places_of_ids(128, 1)]}
    reduction = Reduction("s", "resid_post", (0,), 4, 6, "fp32", encoder)
    x = jnp.ones((1, 2, 4)).at[0, 1, 2].set(np.inf)
    values, ids, active = reduce(x, reduction, {"reductions": {"s": params}}, 0, (0,), Split()).values()
    assert ids[0, 0].tolist() == [3, 6, 0, 5, -1, -1]
    assert values[0, 0].tolist() == [3, 3, 1, np.float32(1e-30), 0, 0]
    assert active[0, 0].tolist() == [4]
    assert np.isnan(values[0, 1]).all()


def test_devices_that_share_the_weights_give_the_bits_of_one_device(forks):
    ended = forks.run("reduced_devices:check_split", environment=with_devices(8))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("layers", "dense", "ranges"), [((0, 2, 4, 6), (5,), 1), (tuple(range(7)), (3,), 3)], ids=["some", "all"]
)
def test_reductions_of_some_layers_beside_dense_rows_of_another_are_those_of_dense_rows(layers, dense, ranges):
    name = "gemma3-text"
    config, params, rng = golden.config(name), golden.params(name), np.random.default_rng(1)
    rows, width = golden.one_sample_a_row(golden.expected(name)["token_ids"][None]), config.d_model
    scope = Reduction("scope", "resid_post", layers, width, 8, "fp32", Encoder(100, "standard"))
    probe = Reduction("probe", "mlp_out", (1, 4), width, 3, "fp32")
    weights = rng.normal(size=(len(layers), 128, width)).astype(np.float32)
    bias = np.where(np.arange(128) < 100, rng.normal(size=(len(layers), 128)), -1).astype(np.float32)
    weights[:, 100:] = 0
    places, directions = places_of_ids(128, 1), rng.normal(size=(2, 3, width)).astype(np.float32)
    encoder = {"encode": weights[:, places], "b": bias[:, places]}
    params |= {"reductions": {"scope": encoder, "probe": {"directions": directions}}}
    others = {"reductions": (scope, probe), "moments": (("resid_mid", (2, 4)),)} if ranges == 1 else {}
    few = Capture(config, dense, ("resid_post",), "all", "fp32", **({"reductions": (scope,)} | others))
    every = Capture(config, tuple(range(7)), ("resid_post", "mlp_out", "resid_mid"), "all", "fp32")
    assert len(layer_ranges([few.at(layer) for layer in range(7)], 7)) == ranges

    def run(capture):
        run = jax.jit(lambda params: compute_step(params, rows, jnp.zeros((1, 1), jnp.int32), capture, CPU))
        with jax.default_matmul_precision("highest"):
            found = run(params)
        return {
            f"{name} {part}": np.concatenate([np.asarray(y)[:, 0] for y in pieces])
            for part, by_name in found.items()
            for name, pieces in by_name.items()
        }

    got, wanted = run(few), run(every)
    np.testing.assert_allclose(got["resid_post rows"], wanted["resid_post rows"][list(dense)], rtol=1e-4, atol=1e-5)
    for place, layer in enumerate(layers):
        hidden = np.maximum(wanted["resid_post rows"][layer] @ weights[place, :100].T + bias[place, :100], 0)
        order = np.argsort(-hidden, axis=1, kind="stable")[:, :8]
        assert np.array_equal(got["scope_ids rows"][place], order), layer
        close = np.take_along_axis(hidden, order, axis=1)
        np.testing.assert_allclose(got["scope rows"][place], close, rtol=1e-4, atol=1e-4, err_msg=str(layer))
        assert np.array_equal(got["scope_active rows"][place][:, 0], (hidden > 0).sum(axis=1))
    if ranges == 1:
        dots = np.einsum("ltd,lkd->ltk", wanted["mlp_out rows"][[1, 4]], directions)
        np.testing.assert_allclose(got["probe rows"], dots, rtol=1e-4, atol=1e-4)
        mid = wanted["resid_mid rows"][[2, 4]].astype(np.float64)
        for part, power in (("sum", 1), ("squares", 2)):
            np.testing.assert_allclose(got[f"resid_mid {part}"][:, 0], (mid**power).sum(axis=1), rtol=1e-4, atol=1e-3)
