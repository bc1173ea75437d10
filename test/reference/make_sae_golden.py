"""Makes test/worker/golden_saes/: random autoencoders in each published layout, and what SAELens computes with them.

    node test/reference/run.ts --make-sae-golden

A person runs this script. SAELens itself saves its own, and its loaders read all. expected.npz has the vectors, and the
features of each autoencoder under "FOLDER CHANGES": the changes of its cfg.json, as JSON.
"""

import itertools
import json
import os
import shutil
from unittest import mock

import numpy as np
import sae_lens
import torch
from huggingface_hub.errors import EntryNotFoundError
from sae_lens.loading import pretrained_sae_loaders as loaders
from safetensors.numpy import load_file, save_file

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker", "golden_saes")
D_IN, K, HOOK, NORM = 16, 6, "blocks.1.hook_resid_post", 7.5
NORMS = ("none", "layer_norm", "constant_norm_rescale")
SAES = ("standard", "topk", "gated", "jumprelu")
TRANSCODERS = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")
GEMMA = [f"gemma/{kind}/layer_1_width_48" for kind in ("resid_post", "attn_out", "transcoder")]  # one has a config
LLAMA = "llama/L1R"


def changes_of(name: str) -> list[dict]:
    """The configs under which the autoencoder has a meaning."""
    keys = {"normalize_activations": NORMS} if name in SAES + TRANSCODERS else {}
    keys |= {"apply_b_dec_to_input": (True, False)} if name in SAES else {}
    keys |= {"rescale_acts_by_decoder_norm": (False, True)} if name == "topk" else {}
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*keys.values())]


def save(path: str, name: str, seed: int, d_sae: int) -> None:
    """Saves an autoencoder of SAELens in which biases count and thresholds lie within the values."""
    metadata = sae_lens.saes.sae.SAEMetadata(hook_name=HOOK, sae_lens_version=sae_lens.__version__)
    if name == "batchtopk":
        config = sae_lens.BatchTopKTrainingSAEConfig(d_in=D_IN, d_sae=d_sae, k=K, metadata=metadata)
        made = sae_lens.BatchTopKTrainingSAE(config)
        made.topk_threshold.fill_(2.5)
    else:
        facts = {"d_in": D_IN, "d_sae": d_sae, "architecture": name, "apply_b_dec_to_input": name in SAES, "k": K}
        made = sae_lens.SAE.from_dict(facts | {"d_out": D_IN, "metadata": metadata.to_dict()})
    generator = torch.Generator().manual_seed(seed)
    for key, parameter in made.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        parameter.data = {"threshold": values.abs() * 2, "r_mag": values * 0.3}.get(key, values)
    (made.save_inference_model if name == "batchtopk" else made.save_model)(path)


def save_scopes(folder: str, seed: int, d_sae: int) -> None:
    """Gemma Scope 2 and Llama Scope."""
    rng = np.random.default_rng(seed)
    shapes = {
        "w_enc": (D_IN, d_sae),
        "w_dec": (d_sae, D_IN),
        "b_enc": (d_sae,),
        "b_dec": (D_IN,),
        "threshold": (d_sae,),
    }
    for name in GEMMA:
        write(f"{folder}/{name}/params.safetensors", {key: rng.normal(size=shape) for key, shape in shapes.items()})
    facts = {"architecture": "jump_relu", "model_name": "gemma-v3-1b-pt", "hf_hook_point_in": "model.layers.1.output"}
    write(f"{folder}/{GEMMA[0]}/config.json", facts)
    shapes = {"encoder.weight": (d_sae, D_IN), "encoder.bias": (d_sae,)}
    shapes |= {"decoder.weight": (D_IN, d_sae), "decoder.bias": (D_IN,)}
    tensors = {key: rng.normal(size=shape) for key, shape in shapes.items()}
    write(f"{folder}/{LLAMA}/checkpoints/final.safetensors", tensors)
    facts = {"d_model": D_IN, "d_sae": d_sae, "hook_point_in": HOOK, "jump_relu_threshold": 1.2}
    write(f"{folder}/{LLAMA}/hyperparams.json", facts | {"dataset_average_activation_norm": {"in": NORM, "out": NORM}})


def write(path: str, content: dict) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if path.endswith(".safetensors"):
        return save_file({name: array.astype(np.float32) for name, array in content.items()}, path)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def load(folder: str, name: str, changes: dict) -> sae_lens.SAE:
    """The autoencoder as SAELens loads it, with changes of its config."""

    def changed(path, device, cfg_overrides=None):
        config, tensors = loaders.sae_lens_disk_loader(path, device)
        return config | changes, tensors

    def local(repo_id, filename, subfolder="", **_):
        path = os.path.join(folder, subfolder, filename)
        if not os.path.exists(path):
            raise EntryNotFoundError("no such file")
        return path

    def shapes(repo_id, filename):
        return {key: list(array.shape) for key, array in load_file(os.path.join(folder, filename)).items()}

    if name not in (*GEMMA, LLAMA):
        return sae_lens.SAE.load_from_disk(f"{folder}/{name}", converter=changed)
    loader = loaders.llama_scope_sae_huggingface_loader if name == LLAMA else loaders.gemma_3_sae_huggingface_loader
    with (
        mock.patch.object(loaders, "hf_hub_download", local),
        mock.patch.object(loaders, "get_safetensors_tensor_shapes", shapes),
        # The table of releases has it: the root of the width over the norm.
        mock.patch("sae_lens.saes.sae.get_norm_scaling_factor", lambda *_: D_IN**0.5 / NORM),
    ):
        return sae_lens.SAE.from_pretrained("a-publisher/gemma-scope-2-1b-pt", name, converter=loader)


def make(folder: str, seed: int = 0, d_sae: int = 48, vectors: int = 6, dtype=torch.float32) -> dict:
    """Writes the autoencoders, and returns the contents of expected.npz."""
    rng, own = np.random.default_rng(seed), (*SAES, *TRANSCODERS, "batchtopk")
    found = {"x": (3 * rng.normal(size=(vectors, D_IN)) + rng.normal(size=D_IN)).astype(np.float32)}
    for number, name in enumerate(own):
        save(f"{folder}/{name}", name, seed + number, d_sae)
    save_scopes(folder, seed, d_sae)
    for name, changes in [(each, changes) for each in (*own, *GEMMA, LLAMA) for changes in changes_of(each)]:
        with torch.no_grad():
            acts = load(folder, name, changes).to(dtype=dtype).encode(torch.from_numpy(found["x"]).to(dtype))
        found[f"{name} {json.dumps(changes)}"] = acts.float().numpy()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    np.savez_compressed(os.path.join(FOLDER, "expected.npz"), **make(FOLDER))
