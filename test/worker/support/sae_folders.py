"""Folders of random autoencoders for the tiny model: `sae_folder` is one, `reduced` a spec of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from build import TINY_CONFIG

D, LAYERS, D_SAE = TINY_CONFIG["hidden_size"], TINY_CONFIG["num_hidden_layers"], 60


def put_sae(folder, layer=1, d_in=D, d_sae=D_SAE, seed=0, config=None, **tensors):
    """Writes an autoencoder of one layer. tensors: in place of the random ones; None for none."""
    rng = np.random.default_rng([seed, layer])
    shapes = {"W_enc": (d_in, d_sae), "b_enc": (d_sae,), "b_dec": (d_in,)}
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | tensors
    facts = {"architecture": "standard", "d_in": d_in, "d_sae": d_sae, "apply_b_dec_to_input": True}
    facts |= {"normalize_activations": "none", "metadata": {"hook_name": f"blocks.{layer}.hook_resid_post"}}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cfg.json").write_text(json.dumps(facts | (config or {})))
    save_file({name: array for name, array in made.items() if array is not None}, folder / "sae_weights.safetensors")


def put_saes(folder, seed=0):
    """Writes an autoencoder and a matrix of directions for each layer of the tiny model."""
    rng = np.random.default_rng(seed)
    for layer in range(LAYERS):
        put_sae(Path(folder) / f"layer_{layer}", layer, seed=seed)
    directions = {str(layer): rng.normal(size=(5, D)).astype(np.float32) for layer in range(LAYERS)}
    save_file(directions, Path(folder) / "probes.safetensors")


@pytest.fixture(scope="session")
def sae_folder(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("saes"))
    put_saes(folder)
    return folder


def reduced(weights, **changes):
    """The keys of a spec with features of every layer, a projection of one, and moments, and no dense rows."""
    features = {"name": "scope", "weights": weights, "path": "layer_{layer}", "k": 8}
    probe = {"name": "probe", "weights": f"{weights}/probes.safetensors", "layers": [1]}
    return {"sites": [], "features": [features], "project": [probe], "moments": {"layers": [0, 2]}} | changes
