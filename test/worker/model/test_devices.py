"""All chips of a machine: rows and weights on several devices give the results of a single device."""

import json

import jax
import numpy as np
import pytest

from build import TINY_CONFIG, a_model, a_spec, fails
from environment import with_devices
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.model.tiny import make_tiny_model
from gleaner_worker.model.weights.mesh import can_split, layouts, parameter_axes

pytestmark = pytest.mark.slow

SITES = ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "k", "rot_q", "mlp_neurons", "final_norm"]
GEMMA_CONFIG = TINY_CONFIG | {
    "model_type": "gemma2",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 8,
    "sliding_window": 16,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory, forks):
    """on_devices(folder, count, ways, **spec) -> the results of devices_process.py, kept for the next call."""
    answers = {}

    def get(folder, count, ways=None, **spec):
        spec = {"model": folder, "max_seq_length": 64, "dtype": "fp32", "sites": SITES} | spec
        key = json.dumps([count, ways, spec], sort_keys=True)
        if key not in answers:
            out = str(tmp_path_factory.mktemp("devices") / "out.npz")
            variables = with_devices(count)
            ended = forks.run("devices_process:run", out, spec, ways, environment=variables)
            assert ended.returncode == 0, ended.stderr
            answers[key] = dict(np.load(out))
        return answers[key]

    return get


@pytest.fixture(scope="module")
def gemma_folder(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("gemma"))
    make_tiny_model(folder, seed=2, config=GEMMA_CONFIG)
    return folder


def rows_of(answer):
    return {name: rows for name, rows in answer.items() if name not in ("layout", "sums")}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int8"])
def test_eight_devices_compute_the_same_bits_as_one_device(on_devices, tiny_folder, dtype):
    one, eight = (on_devices(tiny_folder, count, dtype=dtype) for count in (1, 8))
    assert one["layout"][:2].tolist() == [1, 1] and eight["layout"][:2].tolist() == [8, 1]
    assert eight["layout"][3] < one["layout"][3]  # steps: eight rows each
    assert eight["layout"][2] == 8 * one["layout"][2]  # every device has all weights
    assert len(rows_of(one)) == 300 * len(SITES)
    for name, rows in rows_of(one).items():
        np.testing.assert_array_equal(rows, eight[name], err_msg=name)
    np.testing.assert_allclose(eight["sums"], one["sums"], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["mean", "all"])
@pytest.mark.parametrize("split", [2, 4])
def test_split_weights_compute_the_same_activations(request, on_devices, tiny_folder, split, tokens):
    # Only one case waits for the model of Gemma.
    for folder in (tiny_folder, request.getfixturevalue("gemma_folder")) if tokens == "all" else (tiny_folder,):
        one = on_devices(folder, 1, tokens=tokens)
        many = on_devices(folder, 8, ways=split, tokens=tokens)
        assert many["layout"][:2].tolist() == [8 // split, split]
        # A device has its part, and all weights that are not split.
        assert many["layout"][2] < 8 * one["layout"][2] / split * 1.3
        for name, rows in rows_of(one).items():
            found, expected = many[name].view(np.float32).astype(np.float64), rows.view(np.float32)
            assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected), name
        assert not all(np.array_equal(rows, many[name]) for name, rows in rows_of(one).items())  # it was split


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("ways", "names"),
    [
        (4, ["olmo2", "gpt-oss", "qwen3-moe"]),
        (2, ["gemma", "olmo3", "gpt2", "mixtral"]),
        (4, ["gpt-neox", "granite", "phi3", "smollm3"]),
    ],
)
def test_split_weights_of_each_kind_of_block_equal_transformers(forks, ways, names):
    variables = with_devices(ways)
    ended = forks.run("devices_process:check_golden", names, ways, environment=variables)
    assert ended.returncode == 0, ended.stderr


def a_big_config(**changes):
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
    return parse_config(TINY_CONFIG | heads | changes, "a model")


@pytest.mark.parametrize(
    "heads, kv_heads, ways, fits",
    [(14, 2, 2, True), (14, 2, 4, False), (8, 2, 4, True), (8, 8, 8, True), (32, 8, 3, False), (12, 4, 6, False)],
)
def test_a_split_keeps_every_attention_head_whole(heads, kv_heads, ways, fits):
    config = a_big_config(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=8)
    assert can_split(config, ways) == fits


def test_devices_share_key_and_value_heads_when_a_model_has_fewer_heads_than_devices():
    config = a_big_config()
    assert parameter_axes("wq", (3, 64, 64), config, 4) == (None, "model")
    assert parameter_axes("wk", (3, 16, 64), config, 4) == ()
    assert parameter_axes("wk", (3, 16, 64), config, 2) == (None, "model")
    assert parameter_axes("wo", (3, 64, 64), config, 4) == (None, None, "model")
    assert parameter_axes("embed", (600, 64), config, 4) == (None, "model")
    assert parameter_axes("down", (3, 64, 49), config, 4) == ()  # 49 does not divide
    assert parameter_axes("b_gate", (3, 96), config, 4) == parameter_axes("b_up", (3, 96), config, 4) == (None, "model")


def test_a_model_too_large_for_every_split_is_refused_with_the_sizes():
    config = a_big_config()
    params = {"embed": np.zeros((600, 64), np.float32), "blocks": {"wq": np.zeros((3, 64, 64), np.float32)}}
    devices = jax.local_devices() * 4
    assert [layout.model for layout in layouts(params, config, 100_000, devices)] == [4]
    with fails("model") as failure:
        layouts(params, config, 50_000, devices)
    for said in ("4 cpu of 5e-05 GB", "5.07e-05 GB split over 4", "8 heads", "more memory"):
        assert said in failure.value.reason, failure.value.reason


def test_a_step_too_large_for_the_device_is_refused_with_its_shape(tiny_folder):
    spec = a_spec(model=tiny_folder, max_seq_length=64)
    weights = sum(w.nbytes for w in jax.tree.leaves(a_model(spec).params))
    limit = 600_000
    assert weights < 0.92 * limit
    with fails("model") as failure:
        a_model(spec, device_bytes=limit)
    for said in ("1 x 128 tokens", "max_seq_length 64", "0.0006 GB"):
        assert said in failure.value.reason, failure.value.reason
