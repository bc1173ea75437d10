"""The decoder against transformers' numbers (golden/, made by make_golden.py), and against itself in other batches."""

import json
import os
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gleaner_worker.model import decoder as qwen2
from gleaner_worker.failures import Failure
from gleaner_worker.model.loaded import run_batch
from gleaner_worker.shards.plan import Batch, ShardPlan
from gleaner_worker.model.config import parse_config
from gleaner_worker.records.samples import Sample
from gleaner_worker.spec import resolve_layers
from gleaner_worker.model.weights import load_params

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
FP32_LIMIT, BF16_LIMIT = 1e-5, 3e-2


def raw_config(name="config.json"):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as file:
        return json.load(file)


CONFIG = parse_config(raw_config(), "golden")
WINDOWED = parse_config(raw_config("config-windowed.json"), "golden")
EXPECTED = np.load(os.path.join(GOLDEN, "expected.npz"))
ALL = tuple(range(4))


def params(dtype="fp32"):
    return load_params(GOLDEN, CONFIG, 4, dtype, "golden")


def errors(config, expected, weights, layers=ALL):
    """Relative L2 distance per layer."""
    with jax.default_matmul_precision("highest"):
        got = np.asarray(qwen2.resid_post(weights, EXPECTED["token_ids"], config, layers)).astype(np.float32)[:, 0]
    return [
        float(np.linalg.norm(a - expected[i]) / np.linalg.norm(expected[i])) for a, i in zip(got, layers, strict=True)
    ]


@pytest.mark.parametrize(("config", "expected"), [(CONFIG, "full"), (WINDOWED, "windowed")])
@pytest.mark.parametrize(("dtype", "limit"), [("fp32", FP32_LIMIT), ("bf16", BF16_LIMIT)])
def test_every_layer_is_what_transformers_computes(config, expected, dtype, limit):
    assert max(errors(config, EXPECTED[expected], params(dtype))) <= limit


def without_bias(weights):
    return weights | {
        "blocks": weights["blocks"] | {name: np.zeros_like(weights["blocks"][name]) for name in ("bq", "bk", "bv")}
    }


def heads_in_other_order(weights):
    """Query heads spread over key/value heads round robin, not in groups."""
    wq = weights["blocks"]["wq"].reshape(4, 2, 2, 8, 32).swapaxes(1, 2).reshape(4, 32, 32)
    return weights | {"blocks": weights["blocks"] | {"wq": wq}}


@pytest.mark.parametrize(
    ("name", "config", "change"),
    [
        ("theta", replace(CONFIG, rope_theta=10_000.0), lambda w: w),
        ("eps", replace(CONFIG, norm_eps=1e-5), lambda w: w),
        ("no bias", CONFIG, without_bias),
        ("order of heads", CONFIG, heads_in_other_order),
        (
            "scale",
            CONFIG,
            lambda w: w | {"blocks": w["blocks"] | {"wq": w["blocks"]["wq"] * 1.05, "bq": w["blocks"]["bq"] * 1.05}},
        ),
        ("window that is not there", WINDOWED, lambda w: w),
        (
            "norm",
            CONFIG,
            lambda w: w | {"blocks": w["blocks"] | {"norm2": np.ones_like(w["blocks"]["norm2"])}},
        ),
    ],
)
def test_a_decoder_that_is_wrong_is_seen(name, config, change):
    assert max(errors(config, EXPECTED["full"], change(params()))) > 3 * FP32_LIMIT


def test_a_window_that_is_ignored_is_seen():
    assert max(errors(CONFIG, EXPECTED["windowed"], params())) > 1e-2


@pytest.mark.parametrize("layers", [(0,), (3,), (1, 2), (0, 3), (0, 1, 3)])
def test_chosen_layers_are_those_of_the_whole_model(layers):
    weights = load_params(GOLDEN, CONFIG, layers[-1] + 1, "fp32", "golden")
    assert max(errors(CONFIG, EXPECTED["full"], weights, layers)) <= FP32_LIMIT


def test_long_sequences_go_in_query_blocks_and_come_out_the_same(monkeypatch):
    ids = np.random.default_rng(0).integers(0, 64, (1, 500), dtype=np.int32)
    whole = np.asarray(qwen2.resid_post(params(), ids, CONFIG, ALL))
    monkeypatch.setattr(qwen2, "_QUERY_BLOCK", 64)
    again = jax.jit(qwen2.resid_post.__wrapped__, static_argnums=(2, 3))  # not the one that is compiled already
    blocks = np.asarray(again(params(), ids, CONFIG, ALL))
    assert np.linalg.norm(whole - blocks) / np.linalg.norm(whole) < 1e-6


def test_rope_theta_is_found_where_either_version_of_transformers_puts_it():
    raw = raw_config()
    theta = raw.pop("rope_theta")
    assert parse_config(raw | {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}, "m") == CONFIG


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "llama"}, "model_type is 'llama', only 'qwen2' is supported"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope type is 'yarn'"),
        ({"vocab_size": None, "model_type": "gemma"}, "vocab_size is missing; model_type is 'gemma'"),
        ({"num_key_value_heads": 3}, "4 heads, 3 key/value heads"),
    ],
)
def test_a_config_that_is_not_supported_says_all_that_is_wrong(change, reason):
    with pytest.raises(Failure, match=f"Failed to use my-model: .*{reason}") as failure:
        parse_config(raw_config() | change, "my-model")
    assert failure.value.kind == "model"


def changed_model(tmp_path, change):
    tensors = load_file(os.path.join(GOLDEN, "model.safetensors"))
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    return str(tmp_path)


def test_all_that_is_wrong_with_the_weights_is_one_error(tmp_path):
    def change(tensors):
        del tensors["model.layers.1.self_attn.k_proj.bias"]
        tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((5, 5), np.float32)
        tensors["model.layers.0.self_attn.q_norm.weight"] = np.zeros(8, np.float32)

    with pytest.raises(Failure) as failure:
        load_params(changed_model(tmp_path, change), CONFIG, 4, "fp32", "my-model")
    assert failure.value.kind == "model"
    for part in (
        "my-model",
        "k_proj.bias is missing",
        "up_proj.weight is [5, 5], config.json says [56, 32]",
        "q_norm.weight is not part of this",
    ):
        assert part in failure.value.reason


def test_the_head_and_the_final_norm_are_not_needed_and_not_in_the_way(tmp_path):
    def change(tensors):
        del tensors["model.norm.weight"]
        tensors["lm_head.weight"] = np.zeros((64, 32), np.float32)

    load_params(changed_model(tmp_path, change), CONFIG, 4, "fp32", "m")


def test_weights_in_several_files_are_one_model(tmp_path):
    tensors = load_file(os.path.join(GOLDEN, "model.safetensors"))
    names = sorted(tensors)
    parts = {"a.safetensors": names[:20], "b.safetensors": names[20:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert max(errors(CONFIG, EXPECTED["full"], load_params(str(tmp_path), CONFIG, 4, "fp32", "m"))) <= FP32_LIMIT
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(Failure, match="it has no b.safetensors"):
        load_params(str(tmp_path), CONFIG, 4, "fp32", "m")


def test_pickled_or_damaged_weights_are_not_read(tmp_path):
    with pytest.raises(Failure, match="has no model.safetensors .pickled weights are never read"):
        load_params(str(tmp_path), CONFIG, 4, "fp32", "m")
    shutil.copy(os.path.join(GOLDEN, "model.safetensors"), tmp_path)
    os.truncate(tmp_path / "model.safetensors", 70_000)
    with pytest.raises(Failure, match="Failed to read model.safetensors of m"):
        load_params(str(tmp_path), CONFIG, 4, "fp32", "m")


@pytest.mark.parametrize(("layers", "expected"), [("all", (0, 1, 2)), ("0-1", (0, 1)), ([2, 0, 2], (0, 2))])
def test_layers_are_chosen_in_each_way_that_the_spec_knows(layers, expected):
    from build import a_spec

    assert resolve_layers(a_spec(layers=layers), 3) == expected


@pytest.mark.parametrize("layers", ["0-3", [3], "2-1"])
def test_layers_that_the_model_lacks_are_an_error(layers):
    from build import a_spec

    with pytest.raises(Failure, match="it has layers 0 to 2"):
        resolve_layers(a_spec(layers=layers), 3)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_sample_is_the_same_in_any_batch_with_any_neighbours(tiny_models, dtype):
    model = tiny_models(dtype=dtype)
    rng = np.random.default_rng(3)
    samples = tuple(
        Sample(i, rng.integers(0, 600, n).astype(np.int32), "", False) for i, n in enumerate([100, 7, 128, 1, 60])
    )
    plan = ShardPlan(1, 0, 4, samples, True)

    def rows(batch, sample):
        return np.asarray(run_batch(model, plan, batch)).astype(np.float32)[
            :, batch.rows.index(sample), : len(samples[sample].token_ids)
        ]

    for sample in range(5):
        alone = rows(Batch((sample,), 1, 128), sample)
        for batch in (Batch((0, 1, 2, 3, 4), 8, 128), Batch((4, 3, 2, 1, 0), 5, 256)):
            other = rows(batch, sample)
            assert np.linalg.norm(alone - other) <= (1e-5 if dtype == "fp32" else 2e-2) * np.linalg.norm(alone)
    # Of one shape, what is in the other rows changes nothing at all.
    assert np.array_equal(rows(Batch((0, 1, 2, 3, 4), 8, 128), 0), rows(Batch((0, 3), 8, 128), 0))
