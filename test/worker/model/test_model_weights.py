"""Weight files from any source: they match the config, or are refused with all problems in one error."""

import json
import os
import sys
from dataclasses import replace

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import golden_models as golden
from build import fails
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.tensor_names import HEADS
from gleaner_worker.failures import Failure
from gleaner_worker.model.weights import weights
from gleaner_worker.model.weights.tensors import block_table, names_of
from gleaner_worker.model.weights.weights import with_stored_head
from host_params import load_params, weight_files

pytestmark = pytest.mark.slow

CONFIG = golden.config("qwen2")


def load(folder, config=CONFIG, layers=3, dtype="fp32"):
    return load_params(str(folder), config, layers, dtype, "my-model")


def changed_model(tmp_path, change):
    tensors = load_file(os.path.join(golden.folder("qwen2"), "model.safetensors"))
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def test_all_problems_of_the_weights_are_one_error(tmp_path):
    def change(tensors):
        del tensors["model.layers.1.self_attn.k_proj.bias"]
        tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((5, 5), np.float32)
        tensors["model.layers.0.self_attn.q_norm.weight"] = np.zeros(4, np.float32)
        tensors["model.layers.3.mlp.up_proj.weight"] = np.zeros((40, 16), np.float32)
        tensors["model.layers.0.mlp.down_proj.weight"] = np.zeros((16, 40), np.int8)
        tensors["model.layers.0.mlp.gate_proj.weight"] = np.zeros((40, 16), np.float64)
        tensors["x" * 9000] = np.zeros(1, np.float32)
        tensors["embed_tokens.weight"] = tensors["model.embed_tokens.weight"]

    with fails("model") as failure:
        load(changed_model(tmp_path, change))
    assert len(failure.value.reason) < 2000
    for part in (
        "Failed to load the weights of my-model: ",
        "model.layers.1.self_attn.k_proj.bias is missing",
        "model.layers.2.mlp.up_proj.weight is [5, 5], config.json says [40, 16]",
        "model.layers.0.self_attn.q_norm.weight is not part of this architecture",
        "model.layers.3.mlp.up_proj.weight is not part of this architecture",
        "model.layers.0.mlp.down_proj.weight is I8, only BF16, F16, F32 are supported",
        "model.layers.0.mlp.gate_proj.weight is F64",
        "xxx...",
        "embed_tokens.weight is not part of this architecture",
    ):
        assert part in failure.value.reason


def test_a_model_that_lacks_every_tensor_is_an_error_of_readable_length(tmp_path):
    save_file({"wte.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(Failure, match="wte.weight is not part") as failure:
        load(tmp_path)
    layers = [f"layers.{i}.{name}" for i in range(CONFIG.num_layers) for name in block_table(CONFIG).tensors]
    for name in [names_of(CONFIG).embedding, *layers]:
        assert f"model.{name} is missing" in failure.value.reason
    with pytest.raises(Failure, match=r"layers.7.mlp.down_proj.weight is missing.*; and 862 more") as failure:
        load(tmp_path, replace(CONFIG, num_layers=80))
    assert len(failure.value.reason) < 8000


def test_heads_the_final_norm_and_old_buffers_are_ignored(tmp_path):
    def change(tensors):
        del tensors["model.norm.weight"]
        tensors["lm_head.weight"] = np.zeros((64, 16), np.int8)
        tensors["score.weight"] = np.zeros((1, 16), np.float32)  # of a reward model
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(2, np.float32)
        tensors["model.rotary_emb.inv_freq"] = np.zeros(2, np.float32)

    load(changed_model(tmp_path, change))


def last_value_changed(embeddings):
    changed = embeddings.copy()
    changed[-1, -1] += 1
    return changed


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(
    ("head", "is_tied"),
    [
        (lambda embeddings: embeddings, True),
        (lambda embeddings: embeddings.astype(ml_dtypes.bfloat16), True),
        (last_value_changed, False),
    ],
)
def test_a_stored_head_counts_where_its_values_are_not_those_of_the_embeddings(
    tmp_path, monkeypatch, name, head, is_tied
):
    def change(tensors):
        embeddings = tensors["model.embed_tokens.weight"].astype(ml_dtypes.bfloat16).astype(np.float32)
        tensors |= {"model.embed_tokens.weight": embeddings, name: head(embeddings)}

    monkeypatch.setattr(weights, "_COMPARED", 100)  # several groups of ranges
    monkeypatch.setattr(weights, "_COMPARED_AT_ONCE", 3)
    files = weight_files(changed_model(tmp_path, change))
    assert CONFIG.is_tied
    is_other = name != names_of(CONFIG).head  # transformers ignores the head of another family
    assert with_stored_head(CONFIG, files, "my-model") == replace(CONFIG, is_tied=is_tied or is_other)


def test_a_head_of_another_shape_is_refused_where_it_is_needed(tmp_path):
    def change(tensors):
        tensors["lm_head.weight"] = np.zeros((65, 16), np.float32)

    with fails("model", r"lm_head.weight is \[65, 16\], config.json says \[64, 16\]"):
        with_stored_head(CONFIG, weight_files(changed_model(tmp_path, change)), "my-model")


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("dtype", "target"), [("fp32", np.float32), ("bf16", ml_dtypes.bfloat16)])
def test_weights_of_any_float_type_are_cast_to_the_compute_dtype(tmp_path, stored, dtype, target):
    originals = {}

    def change(tensors):
        originals.update({name: tensor.astype(stored) for name, tensor in tensors.items()})
        tensors.update(originals)

    loaded = load(changed_model(tmp_path, change), dtype=dtype)
    assert np.array_equal(loaded["embed"], originals["model.embed_tokens.weight"].astype(target))
    for layer in range(3):
        stack = loaded["blocks"]["wq"]
        assert stack.dtype == target
        assert np.array_equal(stack[layer], originals[f"model.layers.{layer}.self_attn.q_proj.weight"].astype(target))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_weights_of_many_small_reads_are_the_same(tmp_path, monkeypatch, dtype):
    changed_model(tmp_path, lambda tensors: None)
    whole = load(tmp_path, dtype=dtype)
    monkeypatch.setattr("gleaner_worker.model.weights.stored_tensors._READ_BYTES", 37)
    assert jax.tree.all(jax.tree.map(np.array_equal, whole, load(tmp_path, dtype=dtype)))


def test_only_the_requested_blocks_are_loaded():
    loaded = golden.params("qwen2", num_layers=2)
    assert {stack.shape[0] for stack in loaded["blocks"].values()} == {2}
    whole = golden.params("qwen2")
    assert all(np.array_equal(stack, whole["blocks"][name][:2]) for name, stack in loaded["blocks"].items())


def split_model(tmp_path, again=()):
    """The model in two files; both have the tensors in `again`."""
    tensors = load_file(os.path.join(golden.folder("qwen2"), "model.safetensors"))
    names = sorted(tensors)
    parts = {"a.safetensors": names[:20], "b.safetensors": names[20:] + list(again)}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)


def test_weights_in_several_files_are_one_model(tmp_path):
    split_model(tmp_path)
    whole = golden.params("qwen2", num_layers=3)
    assert jax.tree.all(jax.tree.map(np.array_equal, load(tmp_path), whole))


def test_a_tensor_in_two_files_is_an_error(tmp_path):
    split_model(tmp_path, again=["model.embed_tokens.weight"])
    with pytest.raises(Failure, match="model.embed_tokens.weight is stored twice"):
        load(tmp_path)


def header(tensors, data=b"\0" * 16):
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 100,
        b"PK\x03\x04 this is something else",
        (2).to_bytes(8, "little") + b"[]",
        header([]),
        header({"a": 3}),
        header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}),
        header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 15),
        header({"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}),
        header({"a": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 16]}}),
        header({"a": {"dtype": "NONE", "shape": [4], "data_offsets": [0, 16]}}),
        header({name: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} for name in "ab"}),
    ],
)
def test_a_damaged_weight_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    wanted = "Failed to read model.safetensors of my-model: .*copy the model again"
    with fails("model", wanted):
        load(tmp_path)


@pytest.mark.parametrize("length", [0, 7, 8, 500, 5_000, 20_000])
def test_a_truncated_weight_file_is_refused_by_name(tmp_path, length):
    changed_model(tmp_path, lambda tensors: None)
    os.truncate(tmp_path / "model.safetensors", length)
    with pytest.raises(Failure, match="Failed to read model.safetensors of my-model"):
        load(tmp_path)


@pytest.mark.long
def test_loading_takes_the_memory_of_the_parameters_once(tmp_path, forks):
    raw = golden.raw_config("qwen2") | {"hidden_size": 256, "intermediate_size": 4096, "num_hidden_layers": 8}
    config = parse_config(raw, "m")
    tensors = {"model.embed_tokens.weight": np.zeros((64, 256), np.float32)}
    for layer in range(8):
        for name, (shape, *_) in block_table(config).tensors.items():
            tensors[f"model.layers.{layer}.{name}"] = np.ones(shape, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    done = forks.run("host_params:print_memory_of_loading", str(tmp_path))
    assert done.returncode == 0, done.stderr
    grown, size = (int(word) for word in done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert size > 100_000_000
    assert grown * unit < 1.5 * size  # the device is this host: 8 layers, two more in transit, and pages of files
