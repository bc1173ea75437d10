"""All chips of a machine: batches and weights on several devices, with the results of a single device."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from build import TINY_CONFIG, a_model, a_spec
from environment import HERE
from gleaner_worker.failures import Failure
from gleaner_worker.model.capture import Capture
from gleaner_worker.model.config import parse_config
from gleaner_worker.model.mesh import batch_bytes, can_split, choose_layout, parameter_axes, weight_bytes
from gleaner_worker.model.tiny import make_tiny_model

pytestmark = pytest.mark.slow

SITES = ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"]
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
def on_devices(tmp_path_factory):
    """on_devices(folder, count, device_bytes, **spec) -> the results of devices_process.py, kept for the next call."""
    answers, processes = {}, {}

    def get(folder, count, device_bytes=None, **spec):
        spec = {"model": folder, "max_seq_length": 64, "dtype": "fp32", "sites": SITES} | spec
        key = json.dumps([count, device_bytes, spec], sort_keys=True)
        if count not in processes:
            processes[count] = subprocess.Popen(
                [sys.executable, f"{HERE}/devices_process.py"],
                env=os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        if key not in answers:
            out = str(tmp_path_factory.mktemp("devices") / "out.npz")
            processes[count].stdin.write(json.dumps([out, spec, device_bytes]) + "\n")
            processes[count].stdin.flush()
            assert processes[count].stdout.readline() == "done\n"
            answers[key] = dict(np.load(out))
        return answers[key]

    yield get
    for process in processes.values():
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def gemma_folder(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("gemma"))
    make_tiny_model(folder, seed=2, config=GEMMA_CONFIG)
    return folder


def rows_of(answer):
    return {name: rows for name, rows in answer.items() if name not in ("layout", "sums")}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int8"])
def test_eight_devices_compute_the_bits_of_one(on_devices, tiny_folder, dtype):
    one, eight = (on_devices(tiny_folder, count, dtype=dtype) for count in (1, 8))
    assert one["layout"][:2].tolist() == [1, 1] and eight["layout"][:2].tolist() == [8, 1]
    assert eight["layout"][3] < one["layout"][3]  # batches: eight at a time
    assert eight["layout"][2] == 8 * one["layout"][2]  # every device has all weights
    assert len(rows_of(one)) == 300 * len(SITES)
    for name, rows in rows_of(one).items():
        np.testing.assert_array_equal(rows, eight[name], err_msg=name)
    np.testing.assert_allclose(eight["sums"], one["sums"], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["mean", "all"])
@pytest.mark.parametrize("split", [2, 4])
def test_split_weights_compute_the_same(on_devices, tiny_folder, gemma_folder, split, tokens):
    for folder in (tiny_folder, gemma_folder) if tokens == "all" else (tiny_folder,):
        one = on_devices(folder, 1, tokens=tokens)
        spec = {"model": folder, "max_seq_length": 64, "dtype": "fp32", "sites": SITES, "tokens": tokens}
        many = on_devices(folder, 8, device_bytes=room_for(spec, split), tokens=tokens)
        assert many["layout"][:2].tolist() == [8 // split, split]
        # A device has its part, and all weights that are not split.
        assert many["layout"][2] < 8 * one["layout"][2] / split * 1.3
        for name, rows in rows_of(one).items():
            found, expected = many[name].view(np.float32).astype(np.float64), rows.view(np.float32)
            assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected), name
        assert not all(np.array_equal(rows, many[name]) for name, rows in rows_of(one).items())  # it was split


def room_for(raw_spec, ways):
    """The memory of a device for the weights split `ways` ways, but no fewer."""
    model = a_model(a_spec(**raw_spec))
    params, what = model.params, model.capture
    need = weight_bytes(params, what.config, ways) + batch_bytes(what, [(64, 32), (32, 64)], ways)
    return int(need / 0.92) + 1024


def a_big_config(**changes):
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
    return parse_config(TINY_CONFIG | heads | changes, "it")


@pytest.mark.parametrize(
    "heads, kv_heads, ways, fits",
    [(14, 2, 2, True), (14, 2, 4, False), (8, 2, 4, True), (8, 8, 8, True), (32, 8, 3, False), (12, 4, 6, False)],
)
def test_heads_are_never_cut(heads, kv_heads, ways, fits):
    config = a_big_config(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=8)
    assert can_split(config, ways) == fits


def test_devices_share_key_and_value_heads_where_there_are_too_few():
    config = a_big_config()
    assert parameter_axes("wq", (3, 64, 64), config, 4) == (None, "model")
    assert parameter_axes("wk", (3, 16, 64), config, 4) == ()
    assert parameter_axes("wk", (3, 16, 64), config, 2) == (None, "model")
    assert parameter_axes("wo", (3, 64, 64), config, 4) == (None, None, "model")
    assert parameter_axes("embed", (600, 64), config, 4) == (None, "model")
    assert parameter_axes("down", (3, 64, 49), config, 4) == ()  # 49 does not divide
    assert parameter_axes("b_gate", (3, 96), config, 4) == parameter_axes("b_up", (3, 96), config, 4) == (None, "model")


def test_a_model_that_no_split_fits_is_refused_with_the_sizes():
    config = a_big_config()
    params = {"embed": np.zeros((600, 64), np.float32), "blocks": {"wq": np.zeros((3, 64, 64), np.float32)}}
    what = Capture(config, (0, 1, 2), ("resid_post",), "all", "fp32")
    devices = jax.local_devices() * 4
    assert choose_layout(params, what, [(64, 32)], 100_000, devices).model == 4
    with pytest.raises(Failure) as failure:
        choose_layout(params, what, [(64, 32)], 50_000, devices)
    assert failure.value.kind == "model"
    for said in ("4 cpu of 5e-05 GB", "5.07e-05 GB split over 4", "8 heads", "more memory"):
        assert said in failure.value.reason, failure.value.reason


def test_a_batch_that_does_not_fit_is_refused_with_its_shape_before_it_runs(tiny_folder):
    spec = a_spec(model=tiny_folder, max_seq_length=64)
    weights = sum(w.nbytes for w in jax.tree.leaves(a_model(spec).params))
    limit = 600_000
    assert weights < limit
    model = a_model(spec, device_bytes=limit)
    with pytest.raises(Failure) as failure:
        model.start([[SimpleNamespace(token_ids=np.array([1], np.int32), positions=None)]], 64, 32)
    assert failure.value.kind == "model"
    for said in ("64 x 32 tokens", "max_seq_length 64", "0.0006 GB"):
        assert said in failure.value.reason, failure.value.reason
