"""The golden models (see make_golden.py), and the check of the decoder against them."""

import json
import os
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from gleaner_worker.model.config import parse_config
from gleaner_worker.model.decoder import Rows, run_blocks
from gleaner_worker.model.tuning import CPU
from gleaner_worker.spec import SITES
from host_params import load_params

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
NAMES = sorted(os.listdir(FOLDER))
LIMITS = {"fp32": 1e-5, "bf16": 3e-2}
MIN_COSINE = 0.999  # between a token's row and its golden row, on average over tokens


def folder(name):
    return os.path.join(FOLDER, name)


def raw_config(name):
    with open(os.path.join(folder(name), "config.json"), encoding="utf-8") as file:
        return json.load(file)


@cache
def config(name):
    return parse_config(raw_config(name), name)


def params(name, dtype="fp32", num_layers=None):
    return load_params(folder(name), config(name), num_layers or config(name).num_layers, dtype, name)


@cache
def expected(name):
    """{site: [layers, T, D], "token_ids": [T]}"""
    with np.load(os.path.join(folder(name), "expected.npz")) as file:
        return dict(file)


@partial(jax.jit, static_argnums=(2, 3), static_argnames=("sites", "tuning"))
def run(weights, token_ids, config, layers, sites=SITES, tuning=CPU):
    """{site: [len(layers), R, T, D]} of rows with one sample each."""
    pieces = run_blocks(
        weights,
        one_sample_a_row(token_ids),
        config,
        layers,
        sites,
        lambda found: {site: found[site] for site in sites},
        tuning,
    )
    return {site: jnp.concatenate([piece[site] for piece in pieces]) for site in sites}


def one_sample_a_row(token_ids):
    positions = jnp.broadcast_to(jnp.arange(token_ids.shape[1]), token_ids.shape)
    return Rows(jnp.asarray(token_ids), jnp.ones_like(positions), positions)


def check(name, config, weights, dtype="fp32", layers=None):
    """Asserts that every site of every layer equals the results of transformers, within the limit for `dtype`."""
    layers = layers or tuple(range(config.num_layers))
    with jax.default_matmul_precision("highest"):
        got = run(weights, expected(name)["token_ids"][None], config, layers)
    errors = {}
    for site in SITES:
        for values, layer in zip(np.asarray(got[site]).astype(np.float32)[:, 0], layers, strict=True):
            wanted = expected(name)[site][layer]
            errors[f"{site}.{layer}"] = np.linalg.norm(values - wanted) / np.linalg.norm(wanted)
            norms = np.linalg.norm(values, axis=-1) * np.linalg.norm(wanted, axis=-1)
            cosine = ((values * wanted).sum(axis=-1) / norms).mean()
            assert cosine > MIN_COSINE, f"{name} {site}.{layer} differs from transformers: the mean cosine is {cosine}"
    wrong = {key: float(error) for key, error in errors.items() if not error <= LIMITS[dtype]}
    assert not wrong, f"{name} in {dtype} differs from transformers: {wrong}"
