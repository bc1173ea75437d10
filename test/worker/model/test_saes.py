"""Published autoencoders: their features are those of SAELens, and what cannot be used is refused by name."""

import os

import numpy as np
import pytest

from build import fails
from gleaner_worker.architecture.saes import parse_sae
from sae_features import FOLDER, check_features, golden_cases, open_features
from sae_folders import put_sae

pytestmark = pytest.mark.slow

with np.load(os.path.join(FOLDER, "expected.npz")) as file:
    FOUND = dict(file)
CASES = golden_cases(FOUND)
HOOKS = {
    "blocks.3.hook_resid_post": ("resid_post", 3),
    "blocks.3.hook_resid_pre": ("resid_pre", 3),
    "blocks.3.attn.hook_z": ("attn_z", 3),
    "blocks.3.mlp.hook_post": ("mlp_neurons", 3),
    "blocks.3.hook_mlp_in": (None, 3),  # TransformerLens has it before the norm
    "blocks.3.ln2.hook_normalized": (None, 3),  # without the weights of the norm
    "blocks.99999.hook_resid_post": (None, None),
    "hook_embed": (None, None),
}
SCOPE = "transcoder_all/layer_7_width_16k"
GEMMA = {  # by hf_hook_point_in and path
    ("model.layers.3.pre_feedforward_layernorm.output", SCOPE): ("mlp_in", 3, "jumprelu_transcoder"),
    ("model.layers.3.output", SCOPE): ("resid_post", 3, "jumprelu"),
    (None, SCOPE): ("mlp_in", 7, "jumprelu_transcoder"),
    (None, "resid_post_all/layer_7_width_16k_l0_small"): ("resid_post", 7, "jumprelu"),
    (None, "attn_out/layer_7_width_16k"): ("attn_z", 7, "jumprelu"),
}
OLD = {"hook_point": "blocks.2.hook_resid_pre", "hook_point_head_index": None, "d_in": 16, "d_sae": 48}
OLD_TOPK = {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": 5}}
# Part of the reason: a config of SAELens.
REFUSED = {
    "its architecture is 'temporal', and supported are standard, topk": {"architecture": "temporal"},
    "its architecture is 'abstopk'": {"architecture": "abstopk"},
    "its architecture is 'matching_pursuit'": {"architecture": "matching_pursuit"},
    "its activation_fn is 'tanh-relu'": {"activation_fn_str": "tanh-relu"},
    "its normalize_activations is 'covariance_whitening'": {"normalize_activations": "covariance_whitening"},
    "fold_activation_norm_scaling_factor of SAELens": {"normalize_activations": "expected_average_only_in"},
    "expected_average_only_in, with a factor": {"normalize_activations": True},
    "finetuning_scaling_factor True is not supported": {"finetuning_scaling_factor": True},
    "hook_head_index 0 is not supported": {"hook_point_head_index": 0},
    "its architecture is \\['standard'\\]": {"architecture": ["standard"]},
    "its normalize_activations is \\[\\[\\]\\]": {"normalize_activations": [[]]},
    "its activation_fn is {'a': 1}": {"activation_fn": {"a": 1}},
    "d_in is '16'": {"d_in": "16"},
    "k is 1000000+": {"architecture": "topk", "k": 10**60},
    "k is -1": OLD_TOPK | {"activation_fn_kwargs": {"k": -1}},
}
LLAMA = {"d_model": 16, "d_sae": 48, "jump_relu_threshold": 1.0, "dataset_average_activation_norm": {"in": 5.0}}


@pytest.mark.parametrize("name", CASES)
def test_features_of_each_architecture_and_layout_are_those_of_saelens(tmp_path, name):
    check_features(FOLDER, name, FOUND["x"], CASES[name], tmp_path)


def test_the_site_and_layer_are_those_of_the_hook():
    for hook, expected in HOOKS.items():
        for raw in ({"hook_name": hook}, {"hook_point": hook}, {"metadata": {"hook_name": hook}}):
            found = parse_sae("saelens", raw, "", "x")
            assert (found.site, found.layer) == expected, raw
    trap = {"hook_name": "blocks.3.hook_mlp_in", "hf_hook_name": "model.layers.3.pre_feedforward_layernorm.output"}
    assert parse_sae("saelens", {"metadata": trap}, "", "x").site == "mlp_in"
    for (hook, path), expected in GEMMA.items():
        found = parse_sae("gemma-scope-2", {} if hook is None else {"hf_hook_point_in": hook}, path, "x")
        assert (found.site, found.layer, found.architecture) == expected, (hook, path)
        assert not found.subtracts_b_dec
    found = parse_sae("llama-scope", LLAMA | {"hook_point_in": "blocks.3.hook_mlp_out"}, "", "x")
    assert (found.site, found.layer, found.scale, found.threshold) == ("mlp_out", 3, 0.8, 0.8)


def test_configs_from_before_saelens_6_mean_what_they_meant():
    for changes, architecture, k in (
        ({}, "standard", None),
        ({"normalize_activations": False}, "standard", None),
        (OLD_TOPK, "topk", 5),
        ({"architecture": "topk", "activation_fn_kwargs": {"k": 5}}, "topk", 5),
        ({"architecture": "topk"}, "topk", 100),  # the default of SAELens
    ):
        found = parse_sae("saelens", OLD | changes, "", "x")
        assert (found.architecture, found.k, found.norm) == (architecture, k, "none"), changes
        assert (found.site, found.layer, found.subtracts_b_dec) == ("resid_pre", 2, True)


def test_an_autoencoder_that_cannot_be_used_is_refused_by_name():
    for reason, raw in REFUSED.items():
        with fails("model", f"Failed to use x: .*{reason}"):
            parse_sae("saelens", raw, "", "x")
    with fails("model", "Failed to use x: cross-layer transcoders are not supported"):
        parse_sae("gemma-scope-2", {}, "clt/layer_3", "x")
    with fails("model", "its architecture is 'topk', and Gemma Scope 2 has jump_relu"):
        parse_sae("gemma-scope-2", {"architecture": "topk"}, SCOPE, "x")
    norms = [{"dataset_average_activation_norm": norm} for norm in (5, {"in": 10**400}, {"in": 1e-320})]
    for wrong in ({"d_model": 10**400}, {"jump_relu_threshold": float("nan")}, *norms):
        with fails("model", "d_model"):
            parse_sae("llama-scope", LLAMA | wrong, "", "x")


HOOK_2 = "blocks.2.hook_resid_post"
NAN = np.full(48, np.nan, np.float32)
FILES = {  # part of the reason: how put_sae differs, the keys of the entry
    "has 16 values": ({"d_in": 20}, {}),
    "d_sae 48 in its config, 40 in the file; b_enc \\[48\\]": ({"W_enc": np.zeros((16, 40), np.float32)}, {}),
    "d_in 18 in its config, 16 in the file": ({"config": {"d_in": 18}}, {}),
    "the standard of layer 1 has no tensor b_enc, b_dec": ({"b_enc": None, "b_dec": None}, {}),
    "the jumprelu of layer 1 has no tensor threshold": ({"config": {"architecture": "jumprelu"}}, {}),
    "layer 1: b_enc has a value that is not finite": ({"b_enc": NAN}, {}),
    "b_enc is I64, which is no supported type": ({"b_enc": np.zeros(48, np.int64)}, {}),
    "the autoencoder of layer 1 is of layer 2 by its config": ({"config": {"hook_name": HOOK_2, "metadata": {}}}, {}),
    "its config names no site": ({"config": {"metadata": {}}}, {}),
    "loss has no vectors to reduce": ({}, {"site": "loss"}),
    "there is no autoencoder of a known layout for layer 0, 2": ({}, {"layers": "all", "path": "layer_{layer}"}),
    "its path names no {layer}, and it has 3 layers": ({}, {"layers": "all"}),
    "k is 49, and a vector has at most 48 features": ({}, {"k": 49}),
    "k is 7, and a vector has at most 6 features": ({"config": {"architecture": "topk", "k": 6}}, {"k": 7}),
}


def test_files_that_do_not_fit_are_refused_with_what_is_wrong(tmp_path):
    for number, (reason, (changes, entry)) in enumerate(FILES.items()):
        folder = tmp_path / str(number)
        put_sae(folder / "layer_1", **({"d_in": 16, "d_sae": 48} | changes))
        with fails("model", reason) as failure:
            open_features(folder, **({"path": "layer_1"} | entry)).layer(1, 1, "fp32")
        assert "scope" in failure.value.reason and str(folder) in failure.value.reason, reason
    put_sae(folder / "layer_2", 2, 16, 50)
    with fails("model", "its layers have different architectures, widths or k"):
        open_features(folder, path="layer_{layer}", layers=[1, 2])


HOSTILE = {
    "nested deeply": '{"metadata": ' * 1_000_000,
    "a huge number": '{"d_in": ' + "9" * 5_000_000 + "}",
    "no object": "[1]",
    "no JSON": "\0\xff",
    "an architecture of another type": '{"architecture": [{}]}',
    "numbers of another type": '{"d_in": {"a": 1}, "d_sae": [], "k": NaN}',
}


def test_a_hostile_config_fails_the_run_and_the_next_is_read(tmp_path):
    put_sae(tmp_path / "good", d_in=16)
    put_sae(tmp_path / "bad", d_in=16)
    for name, text in HOSTILE.items():
        (tmp_path / "bad" / "cfg.json").write_text(text, encoding="latin-1")
        with fails("model") as failure:
            open_features(tmp_path, path="bad")
        assert len(failure.value.reason) < 1000 and str(tmp_path) in failure.value.reason, name
        assert open_features(tmp_path, path="good").reduction.k == 60
