"""The names of sites in TransformerLens, SAELens and nnsight: these libraries have the values of our sites there."""

import json
import logging
import os
import random
import subprocess

import compare
import nnsight
import numpy as np
import pytest
import torch
import transformer_lens
from random_configs import VARIANTS, shape
from tokenizers import Tokenizer, models
from transformer_lens.model_bridge import TransformerBridge
from transformers import PreTrainedTokenizerFast
from transformers_model import make_folder

from gleaner_reader.export.saelens import HOOKS
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.reference import transformers_model as reference

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 1e-5
FAMILIES = sorted(set(VARIANTS) - {"gemma3, multimodal"})
# The bridge of TransformerLens lacks these names, but for the embeddings of Granite: they are before their multiplier.
_NO_ROPE = {"attn.hook_rot_q", "attn.hook_rot_k"}
EXCEPTIONS = {
    "gpt2": _NO_ROPE,
    "gpt_neox": _NO_ROPE | {"hook_resid_mid"},
    "phi3": _NO_ROPE,
    "granite": {"hook_embed"},
    "mixtral": {"mlp.hook_expert_indices"},
    "olmoe": {"mlp.hook_expert_indices"},
    "qwen3_moe": {"mlp.hook_expert_indices"},
    "gpt_oss": {"mlp.hook_expert_indices", "mlp.gate.hook_out"},
}
# The older HookedTransformer, which reads the whole config.json of these.
HOOKED = {"qwen3": "Qwen/Qwen3-0.6B", "mixtral": "mistralai/Mixtral-8x7B-v0.1"}
# HookedTransformer computes no other values of these keys, and of head_dim.
_OF_HOOKED = {
    "hidden_act": "silu",
    "sliding_window": None,
    "rope_scaling": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
_ONLY_IN_BRIDGE = {"mlp.hook_in", "mlp.gate.hook_out", "ln_final.hook_out"}


@pytest.fixture(scope="module")
def names():
    """{name below a block: site} of `run.json` and of the export for SAELens."""
    script = "import('./shared/contracts/spec/site-names.ts').then(m => console.log(JSON.stringify(m.OTHER_NAMES)))"
    node = os.path.join(ROOT, "node_modules", ".bin", "node")
    printed = subprocess.run([node, "-e", script], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {hook.removeprefix("blocks.{}."): site for site, hook in HOOKS.items()} | json.loads(printed)


class Tiny:
    """A random model of a family, its tokens, and our values: ours[site, layer]."""

    def __init__(self, family, folder):
        logging.disable(logging.WARNING)
        rng = random.Random(f"7 {family}")
        raw, special = VARIANTS[family](rng, shape(rng))
        if family == "gpt_neox":
            raw |= {"attention_bias": True, "use_parallel_residual": True}  # as Pythia; the bridge fails without biases
        if family in HOOKED:
            raw |= _OF_HOOKED | {"head_dim": raw["hidden_size"] // raw["num_attention_heads"]}
        self.folder, self.ids = folder, np.random.default_rng(0).integers(0, raw["vocab_size"] - 1, 90).astype(np.int32)
        make_folder(folder, raw, 5, dtype=torch.bfloat16, **special)
        self.tensor = torch.tensor(self.ids[None].astype(np.int64))
        config = parse_config(raw, family)
        self.layers = range(config.num_layers)
        self.ours = compare.ours(folder, config, "fp32", self.ids)
        self.model = self.load()
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(raw | {"architectures": self.model.config.architectures}, file)
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))

    def load(self):
        model = reference.load(self.folder)
        model.config.architectures = [type(model).__name__]
        return model

    def layers_of(self, site):
        return {"embeddings": [0], "final_norm": [self.layers[-1]]}.get(site, self.layers)

    def errors(self, names, values):
        """{name: the largest relative error of a layer} of values {(name, layer): tensor}."""
        found = {}
        for (name, layer), value in values.items():
            expected = self.ours.get((names[name], layer))
            if expected is not None:
                got = value.detach().float().numpy().reshape(len(self.ids), -1)
                same = got.shape == expected.shape
                error = compare.relative_error(names[name], got, expected) if same else float("inf")
                found[name] = max(found.get(name, 0.0), error)
        return found


def exceptions(tiny, names, values):
    """The names of sites of the model that the library lacks, and that have other values there."""
    errors = tiny.errors(names, values)
    sites = {site for site, _ in tiny.ours}
    return {name for name, site in names.items() if site in sites and not errors.get(name, np.inf) < LIMIT}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_transformer_lens_and_nnsight_have_the_values_of_our_sites(family, names, tmp_path):
    tiny = Tiny(family, str(tmp_path / "model"))
    hooks = {name: site for name, site in names.items() if "hook_" in name}
    paths = {name: site for name, site in names.items() if "hook_" not in name}
    # nnsight first: the bridge changes its model.
    values = of_nnsight(tiny, paths)
    found = {name for name, _ in values}
    assert {"input", "output", "mlp.input"} <= found and len(found) >= 6
    assert exceptions(tiny, {name: paths[name] for name in found}, values) == set()
    assert exceptions(tiny, hooks, of_bridge(tiny, hooks)) == EXCEPTIONS.get(family, set())


@pytest.mark.parametrize("family", HOOKED)
def test_names_of_hooked_transformer_have_the_values_of_our_sites(family, names, tmp_path, monkeypatch):
    tiny = Tiny(family, str(tmp_path / "model"))
    config = tiny.model.config
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: config)
    model = transformer_lens.HookedTransformer.from_pretrained_no_processing(
        HOOKED[family], hf_model=tiny.model, tokenizer=tiny.tokenizer, device="cpu", dtype=torch.float32
    )
    hooks = {name: site for name, site in names.items() if "hook_" in name}
    _, cache = model.run_with_cache(tiny.tensor)
    assert exceptions(tiny, hooks, in_cache(tiny, hooks, cache)) == _ONLY_IN_BRIDGE & {
        name for name, site in hooks.items() if any(site == other for other, _ in tiny.ours)
    }


def of_bridge(tiny, names):
    bridge = TransformerBridge.boot_transformers(
        tiny.folder, hf_model=tiny.model, tokenizer=tiny.tokenizer, device="cpu"
    )
    return in_cache(tiny, names, bridge.run_with_cache(tiny.tensor)[1])


def in_cache(tiny, names, cache):
    places = {
        (name, layer): name if site in ("embeddings", "final_norm") else f"blocks.{layer}.{name}"
        for name, site in names.items()
        for layer in tiny.layers_of(site)
    }
    return {place: cache[hook] for place, hook in places.items() if hook in cache}


def of_nnsight(tiny, names):
    traced, modules = nnsight.NNsight(tiny.model), dict(tiny.model.named_modules())
    blocks = next(path for path in ("model.layers", "gpt_neox.layers", "transformer.h") if path in modules)
    found = {}
    for name, site in names.items():
        below, _, end = name.rpartition(".")
        paths = {
            layer: below if site == "final_norm" else ".".join(filter(None, [blocks, str(layer), below]))
            for layer in tiny.layers_of(site)
        }
        paths = {layer: path for layer, path in paths.items() if path in modules}
        for layer, value in zip(paths, at_modules(traced, paths.values(), end, tiny.tensor), strict=True):
            found[name, layer] = value[0] if isinstance(value, tuple) else value
    return found


def at_modules(traced, paths, end, ids):
    """The inputs or outputs of the modules at these paths, in the order of their computation."""
    places = []
    for path in paths:
        place = traced
        for part in path.split("."):
            place = place[int(part)] if part.isdecimal() else getattr(place, part)
        places.append(place)
    values = []
    if places:
        with traced.trace(ids):
            for place in places:
                values.append((place.input if end == "input" else place.output).save())
    return values
