"""The golden models (see make_golden.py), and the check of the decoder against them."""

import json
import os
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.sites import SITES, TABLE, Capture
from gleaner_worker.model.files.generation_rules import GenerationRules
from gleaner_worker.model.program.decoder import run_blocks
from gleaner_worker.model.program.generation import Decoding
from gleaner_worker.model.program.rows import Rows
from gleaner_worker.model.program.tuning import CPU
from gleaner_worker.model.weights.weights import with_stored_head
from host_params import load_params, weight_files

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
NAMES = sorted(os.listdir(FOLDER))
STEP = 10  # between two tokens whose sites are kept
LIMITS = {"fp32": 1e-5, "bf16": 4e-2}
# A golden model, the keys that another config.json of it leaves out, and those in their place. It is the same model,
# here and in transformers.
OTHER_FORMS: list[tuple[str, dict, dict]] = [
    ("qwen2", {"rope_theta": None}, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    (
        "qwen2-windowed",
        {"max_window_layers": None},
        {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    ),
    (
        "llama3.1",
        {"rope_theta": None, "rope_scaling": None},
        {
            "rope_parameters": {
                "rope_theta": 500000.0,
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    ("llama3.1", {}, {"original_max_position_embeddings": 64}),
    ("smollm3", {"no_rope_layers": None}, {"no_rope_layer_interval": 2}),
    ("mistral", {"head_dim": None}, {"head_dim": 4}),
    ("gpt-neox", {"rotary_pct": None}, {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.4}}),
    ("gemma2", {"hidden_act": None}, {"layer_types": ["sliding_attention", "full_attention"] * 2}),
    (
        "gemma3-text",
        {"rope_parameters": None, "layer_types": None},
        {
            "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "sliding_window_pattern": 6,
        },
    ),
    (
        "gemma3-text",
        {"rope_parameters": None, "layer_types": None},
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}, "sliding_attention": None}},
    ),
]
MIN_COSINE = 0.997  # between a token's row and its golden row, on average over tokens


def folder(name):
    return os.path.join(FOLDER, name)


def raw_config(name):
    with open(os.path.join(folder(name), "config.json"), encoding="utf-8") as file:
        return json.load(file)


@cache
def config(name):
    return with_stored_head(parse_config(raw_config(name), name), weight_files(folder(name)), name)


def params(name, dtype="fp32", num_layers=None):
    """The parameters of all blocks and of the end, or of the first `num_layers` blocks."""
    depth, end = num_layers or config(name).num_layers, "" if num_layers else capture(config(name)).end
    return load_params(folder(name), config(name), depth, dtype, name, end)


@cache
def expected(name):
    """{site: [layers of the site, T, width], "token_ids": [T]}; make_golden.py says which tokens the sites have."""
    with np.load(os.path.join(folder(name), "expected.npz")) as file:
        return dict(file)


@cache
def facts(name):
    """Prompts, as numbers of the first token ids, and the answers of transformers to them; the keys with an effect."""
    with open(os.path.join(folder(name), "expected.json"), encoding="utf-8") as file:
        return json.load(file)


def generate(name, layout, params, placed):
    """The answers to the same prompts. placed: the parameters on the devices of the layout."""
    wanted, ids = facts(name), expected(name)["token_ids"]
    rules = GenerationRules(wanted["new_tokens"], 100, tuple(wanted["ends"]), wanted["repetition_penalty"])
    decoding = Decoding(config(name), layout, params, replace(CPU, bf16_as_bits=False), rules, None, name)
    prompts = [ids[:length] for length in wanted["prompts"]]
    found = dict(decoding.run(placed, prompts, lambda start: start()))
    return [found[number].tolist() for number in range(len(prompts))]


def capture(config, layers=None, sites=SITES):
    """Those of the sites that the layers have, or all layers."""
    layers = tuple(range(config.num_layers)) if layers is None else layers
    every = Capture(config, layers, sites, "all", "fp32")
    return replace(every, sites=tuple(site for site in sites if every.layers_of(site)))


@partial(jax.jit, static_argnames=("capture", "tuning"))
def run(weights, token_ids, capture, tuning=CPU):
    """{(site, layer): [R, T, width]} of rows with one sample each."""
    return by_name(run_blocks(weights, one_sample_a_row(token_ids), capture, lambda found, *_: found, tuning))


def by_name(pieces):
    """The pieces of run_blocks as {(site, layer): [R, T, width]}."""
    return {
        (site, layer): values[place]
        for layers, sites in pieces
        for site, values in sites.items()
        for place, layer in enumerate(layers)
    }


def distances(name, got, wanted_capture):
    """{(site, layer): the relative L2 distance to transformers, the mean cosine of a row}"""
    found, every = {}, capture(wanted_capture.config)
    for site, layer in wanted_capture.names:
        wanted = expected(name)[site][every.layers_of(site).index(layer)]
        values = np.asarray(got[site, layer]).astype(np.float32)[0]
        values = values[:: len(values) // len(wanted)]
        if TABLE[site].dtype == "int32":  # near ties may have another order
            found[site, layer] = 0.0 if (values != wanted).mean() < 0.01 else np.inf, 1.0
            continue
        norms = np.linalg.norm(values, axis=-1) * np.linalg.norm(wanted, axis=-1)
        cosine = ((values * wanted).sum(axis=-1) / norms).mean()
        found[site, layer] = np.linalg.norm(values - wanted) / np.linalg.norm(wanted), cosine
    return found


def one_sample_a_row(token_ids):
    positions = jnp.broadcast_to(jnp.arange(token_ids.shape[1]), token_ids.shape)
    return Rows(jnp.asarray(token_ids), jnp.ones_like(positions), positions)


def check(name, config, weights, dtype="fp32", layers=None):
    """Asserts that every site of every layer equals the results of transformers, within the limit for `dtype`."""
    wanted = capture(
        config, layers, SITES if "final_norm" in weights else [site for site in SITES if not TABLE[site].end]
    )
    with jax.default_matmul_precision("highest"):
        got = run(weights, expected(name)["token_ids"][None], wanted)
    found = distances(name, got, wanted)
    wrong = {
        f"{site}.{layer}": (float(error), float(cosine))
        for (site, layer), (error, cosine) in found.items()
        if dtype == "fp32" or TABLE[site].dtype is None
        if not (error <= LIMITS[dtype] and cosine > MIN_COSINE)
    }
    assert not wrong, f"{name} in {dtype} differs from transformers: {wrong}"
