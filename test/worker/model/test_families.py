"""Every family compared with transformers, in every site of every layer, and with any layout of its files."""

import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import golden_models as golden
from gleaner_worker.architecture.config import ACTIVATIONS, parse_config
from gleaner_worker.architecture.config_parser import Fields
from gleaner_worker.architecture.families import DEFAULTS, FAMILIES, FULL, ROPES, SLIDING, sizes
from gleaner_worker.architecture.tensor_names import OTHER_TOWERS
from host_params import load_params, one_device

pytestmark = pytest.mark.slow


# These differ from other models of their families in the form of their files alone.
PLAIN = {"llama2", "qwen2", "qwen2-yarn"}
# Decoding differs from a step by its attention, positions and logits. These models have each form of the three: sinks,
# a soft cap, windows, embeddings by layer, none, of two lengths or learned, scaled logits, and two kinds of MLP.
DECODED = {"gemma2", "gemma3-text", "gpt-oss", "gpt2", "granite", "olmo3", "phi3", "qwen3-moe", "smollm3"}


def names(full):
    return [pytest.param(name, marks=[] if name in full else pytest.mark.long) for name in golden.NAMES]


@pytest.mark.parametrize("name", names(set(golden.NAMES) - PLAIN))
def test_every_site_of_every_layer_equals_transformers(name):
    golden.check(name, golden.config(name), golden.params(name))


@pytest.mark.parametrize("name", names(DECODED))
def test_every_generated_token_equals_transformers(name):
    weights = golden.params(name)
    assert golden.generate(name, one_device(), weights, jax.device_put(weights)) == golden.facts(name)["answers"]


@pytest.mark.parametrize(
    "name",
    # bf16 chooses other experts for a few tokens, here and in transformers.
    [each for each in names({"qwen2"}) if not golden.config(each.values[0]).experts],
)
def test_every_site_of_every_layer_is_near_transformers_in_bf16(name):
    golden.check(name, golden.config(name), golden.params(name, "bf16"), "bf16")


# Keys that the code reads and that change no number in any family, or in one.
WITHOUT_EFFECT = {
    "max_position_embeddings": "limits the length of a sample",
    "rope.sliding_attention": "an object: its keys count",
    "use_qk_norm": "is ignored by transformers too",
    "gpt_oss: rope_parameters": "is compared as rope_scaling",
    "olmo3: rope_local_base_freq": "is no key of its files",
    "qwen3: max_window_layers": "is compared in qwen2, whose code it shares",
    "gemma3: hidden_activation": "is compared in gemma3_text, whose config is the inner one of gemma3",
    "gemma3_text: sliding_window_pattern": "is compared in gemma3",
    "gemma3: attention_bias": "is compared in gemma3_text, whose config is the inner one of gemma3",
    "gemma3_text: rope_local_base_freq": "is compared in gemma3",
    "qwen2: attention_bias": "is ignored by transformers too: q, k and v always have biases",
    "qwen3: use_qk_norm": "is ignored by transformers too",
    "qwen3_moe: use_qk_norm": "is ignored by transformers too",
}


def keys_of_families(*of):
    """{(family, key of its files)}"""
    return {
        (name, family.renamed.get(key, key))
        for name, family in FAMILIES.items()
        for key in {key for keys in of for key in keys(name, family)}
        if family.renamed.get(key, key)
    }


def key_name(path):
    """The key of a config.json, as `rope.factor` for one of a rotary embedding in any form of file."""
    *objects, key = path.split(".")
    names = {"text_config": "", FULL: "", SLIDING: "", "rope_scaling": "rope.", "rope_parameters": "rope."}
    return "".join(names.get(each, f"{each}.") for each in objects) + key


def test_each_key_that_changes_a_number_is_compared_in_a_golden_model(monkeypatch):
    """make_golden.py shows by transformers which keys of a golden model have an effect on its results."""
    switches = keys_of_families(lambda _, family: family.reads - family.aliases | family.defaults.keys() - DEFAULTS)
    switches |= {(name, family.experts) for name, family in FAMILIES.items() if family.experts not in (None, "always")}
    read = keys_of_families(lambda name, family: {*DEFAULTS, *family.defaults, *family.reads, *sizes(name)})

    def recorded(method):
        def call(fields, key, *args):
            if own := fields.names.get(key, key):  # some families have no such key
                read.add(("", key_name(f"{fields.prefix}{own}")))
            return method(fields, key, *args)

        return call

    for method in (Fields.get, Fields.states):
        monkeypatch.setattr(Fields, method.__name__, recorded(method))
    compared = set()
    for name in golden.NAMES:
        raw = golden.raw_config(name)
        family = FAMILIES[raw["model_type"]]
        for key in map(key_name, golden.facts(name)["keys"]):
            compared.add((raw["model_type"], family.renamed[key] if key in family.aliases else key))
        for model, left_out, changed in [(name, {}, {}), *golden.OTHER_FORMS]:
            if model == name:
                parse_config({key: value for key, value in raw.items() if key not in left_out} | changed, name)
    missing = {key for _, key in read} - {key for _, key in compared}
    missing |= {f"{name}: {key}" for name, key in switches - compared}
    assert missing == set(WITHOUT_EFFECT), f"turn {missing - set(WITHOUT_EFFECT)} on in a model of make_golden.py"


def test_the_fixtures_cover_the_differences_between_families():
    configs = [golden.config(name) for name in golden.NAMES]
    assert {config.family for config in configs} == set(FAMILIES)
    kinds = {rope.kind for config in configs for rope in config.ropes}
    assert kinds == {"none", *ROPES} - {"dynamic"}  # which acts on no sample
    assert {config.activation for config in configs} == set(ACTIVATIONS.values())
    assert any(config.num_heads == config.num_kv_heads for config in configs)
    assert any(config.head_dim * config.num_heads != config.d_model for config in configs)
    for config in configs:
        window, length = min(config.windows), len(golden.expected(golden.NAMES[0])["token_ids"])
        assert window >= 2**30 or length >= 4 * window


@pytest.mark.long
def test_the_weights_of_the_fixtures_are_random():
    for name in golden.NAMES:
        for key, value in golden.params(name)["blocks"].items():
            assert value.std() > 0.05, f"{key} of {name} is not random"


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen2-windowed", "gemma3-text"])
@pytest.mark.parametrize("layers", [(0,), (2,), (0, 2), (1, 2)])
def test_chosen_layers_equal_the_layers_of_the_whole_model(name, layers):
    golden.check(name, golden.config(name), golden.params(name, num_layers=layers[-1] + 1), layers=layers)


@pytest.mark.sample(4)  # each prefix, and each model
@pytest.mark.parametrize("prefix", ["model.", "", "language_model.model.", "model.language_model."])
@pytest.mark.parametrize("name", ["qwen2", "gemma3-text", "gemma3-multimodal"])
def test_a_model_is_the_same_under_any_prefix_of_its_tensors(tmp_path, name, prefix):
    old = "language_model.model." if name == "gemma3-multimodal" else "model."
    tensors = load_file(f"{golden.folder(name)}/model.safetensors")
    renamed = {f"{prefix}{key.removeprefix(old)}": value for key, value in tensors.items() if key.startswith(old)}
    save_file(renamed, tmp_path / "model.safetensors")
    config = golden.config(name)
    loaded = load_params(str(tmp_path), config, config.num_layers, "fp32", "m")
    wanted = golden.params(name)
    assert np.array_equal(loaded["embed"], wanted["embed"])
    assert all(np.array_equal(loaded["blocks"][key], value) for key, value in wanted["blocks"].items())


@pytest.mark.parametrize("prefix", ["", "model."])
def test_towers_of_other_modalities_are_ignored_where_the_config_has_them(tmp_path, prefix):
    name = "gemma3-multimodal"
    tensors = load_file(f"{golden.folder(name)}/model.safetensors")
    assert any(key.startswith("vision_tower.") for key in tensors)
    towers = {key: value for key, value in tensors.items() if key.startswith(OTHER_TOWERS)}
    text = {key: value for key, value in tensors.items() if key not in towers}
    save_file(text | {f"{prefix}{key}": value for key, value in towers.items()}, tmp_path / "model.safetensors")
    config = golden.config(name)
    load_params(str(tmp_path), config, config.num_layers, "fp32", "m")
    with pytest.raises(Exception, match="vision_tower.* is not part of this architecture"):
        text_only = parse_config(golden.raw_config(name)["text_config"], "m")
        load_params(str(tmp_path), text_only, config.num_layers, "fp32", "m")


@pytest.mark.parametrize(("name", "without", "with_"), golden.OTHER_FORMS)
def test_old_and_new_config_keys_have_the_same_meaning(name, without, with_):
    raw = {key: value for key, value in golden.raw_config(name).items() if key not in without}
    assert parse_config(raw | with_, name) == golden.config(name)


def test_a_config_with_few_keys_has_the_defaults_of_transformers():
    # As the text part of gemma-3-4b-it.
    config = parse_config(
        {
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
        },
        "m",
    )
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.vocab_size) == (8, 4, 256, 262_208)
    assert (config.max_positions, config.attention_scale, config.embed_scale) == (131_072, 1 / 16, 2560**0.5)
    assert [layer for layer, window in enumerate(config.windows) if window != 1024] == [5, 11, 17, 23, 29]
    assert [(rope.kind, rope.theta, rope.factor) for rope in config.ropes] == [("default", 1e4, 1), ("linear", 1e6, 8)]


def test_a_generation_config_has_no_effect(tmp_path):
    shutil.copytree(golden.folder("llama2"), tmp_path / "m")
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps({"temperature": "garbage"}))
    config = golden.config("llama2")
    loaded = load_params(str(tmp_path / "m"), config, config.num_layers, "fp32", "m")
    assert np.array_equal(loaded["embed"], golden.params("llama2")["embed"])
