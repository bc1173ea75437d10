"""Makes test/worker/golden_saes/: random autoencoders in each published layout, and what SAELens computes with them.

    node test/reference/run.ts --make-sae-golden

A person runs this script. Those of SAELens are saved by SAELens itself; the others have the tensors and configs of
their publishers, and SAELens's own loaders read them. expected.npz has the vectors, and the features of each
autoencoder under "FOLDER CHANGES": the changes of its cfg.json, as JSON.
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

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(os.path.dirname(HERE), "worker", "golden_saes")
D_IN, D_SAE, K, LAYER = 16, 48, 6, 1
NORMS = ("none", "layer_norm", "constant_norm_rescale")
ARCHITECTURES = ("standard", "topk", "gated", "jumprelu")
TRANSCODERS = ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder")
GEMMA = "model.layers.1.output"
# Folder -> the config.json of Gemma Scope 2; None for a folder without one.
SCOPES = {
    "gemma/resid_post/layer_1_width_48": {"hf_hook_point_in": GEMMA},
    "gemma/attn_out/layer_1_width_48": None,
    "gemma/transcoder/layer_1_width_48_affine": None,
}
LLAMA = "llama/L1R"


def spread(sae: torch.nn.Module, seed: int) -> None:
    """Gives each parameter random values, as no training does: biases that count, thresholds within the values."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sae.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        parameter.data = {"threshold": values.abs() * 2, "r_mag": values * 0.3}.get(name, values)


def changes_of(architecture: str) -> list[dict]:
    """The configs under which an autoencoder of this architecture has a meaning."""
    keys = {"normalize_activations": NORMS}
    if architecture in ARCHITECTURES:
        keys["apply_b_dec_to_input"] = (True, False)
    if architecture == "topk":
        keys["rescale_acts_by_decoder_norm"] = (False, True)
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*keys.values())]


def save(folder: str, architecture: str, seed: int, d_sae: int) -> None:
    more = {"d_out": D_IN} if architecture in TRANSCODERS else {"k": K} if architecture == "topk" else {}
    metadata = {"hook_name": f"blocks.{LAYER}.hook_resid_post", "sae_lens_version": sae_lens.__version__}
    facts = {"architecture": architecture, "d_in": D_IN, "d_sae": d_sae, "metadata": metadata}
    made = sae_lens.SAE.from_dict(facts | more | {"apply_b_dec_to_input": architecture in ARCHITECTURES})
    spread(made, seed)
    made.save_model(folder)


def save_trained(folder: str, kind: str, seed: int, d_sae: int) -> None:
    """BatchTopK, which SAELens saves with one threshold for all features."""
    config = sae_lens.BatchTopKTrainingSAEConfig(d_in=D_IN, d_sae=d_sae, k=K)
    if kind == "matryoshka_batchtopk":
        config = sae_lens.MatryoshkaBatchTopKTrainingSAEConfig(
            d_in=D_IN, d_sae=d_sae, k=K, matryoshka_widths=[8, d_sae]
        )
    config.metadata.hook_name = f"blocks.{LAYER}.hook_resid_post"
    made = sae_lens.TrainingSAE.get_sae_class_for_architecture(kind)(config)
    spread(made, seed)
    made.topk_threshold.fill_(2.5)
    made.save_inference_model(folder)


def save_scopes(folder: str, seed: int, d_sae: int) -> None:
    """Gemma Scope 2 and Llama Scope."""
    rng = np.random.default_rng(seed)
    shapes = {"w_enc": (D_IN, d_sae), "w_dec": (d_sae, D_IN), "b_enc": (d_sae,), "b_dec": (D_IN,)}
    for name, config in SCOPES.items():
        tensors = {key: rng.normal(size=shape) for key, shape in shapes.items()}
        tensors["threshold"] = 2 * rng.random(d_sae)
        if "affine" in name:
            tensors["affine_skip_connection"] = rng.normal(size=(D_IN, D_IN))
        write(f"{folder}/{name}/params.safetensors", tensors)
        if config:
            facts = {"architecture": "jump_relu", "model_name": "gemma-v3-1b-pt", "width": d_sae}
            write_json(f"{folder}/{name}/config.json", facts | config)
    names = {"encoder.weight": (d_sae, D_IN), "encoder.bias": (d_sae,)}
    names |= {"decoder.weight": (D_IN, d_sae), "decoder.bias": (D_IN,)}
    write(f"{folder}/{LLAMA}/checkpoints/final.safetensors", {key: rng.normal(size=s) for key, s in names.items()})
    hook = f"blocks.{LAYER}.hook_resid_post"
    norms = {"dataset_average_activation_norm": {"in": 7.5, "out": 7.5}, "jump_relu_threshold": 1.2}
    write_json(f"{folder}/{LLAMA}/hyperparams.json", {"d_model": D_IN, "d_sae": d_sae, "hook_point_in": hook} | norms)


def write(path: str, tensors: dict) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    save_file({name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}, path)


def write_json(path: str, value: dict) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.write("\n")


def load(folder: str, name: str, changes: dict) -> sae_lens.SAE:
    """The autoencoder as SAELens loads it, with changes of its config."""
    if not name.startswith(("gemma", "llama")):
        with open(f"{folder}/{name}/cfg.json", encoding="utf-8") as file:
            kept = json.load(file)

        def read(path, device, cfg_overrides=None):
            return kept | changes, load_torch(f"{path}/sae_weights.safetensors")

        return sae_lens.SAE.load_from_disk(f"{folder}/{name}", converter=read)

    def local(repo_id, filename, subfolder="", **_):
        path = os.path.join(folder, subfolder, filename)
        if not os.path.exists(path):
            raise EntryNotFoundError("no such file")
        return path

    def shapes(repo_id, filename):
        return {key: list(array.shape) for key, array in load_file(os.path.join(folder, filename)).items()}

    loader = loaders.llama_scope_sae_huggingface_loader if name == LLAMA else loaders.gemma_3_sae_huggingface_loader
    with (
        mock.patch.object(loaders, "hf_hub_download", local),
        mock.patch.object(loaders, "get_safetensors_tensor_shapes", shapes),
        # The table of releases has it: the root of the width over the norm.
        mock.patch("sae_lens.saes.sae.get_norm_scaling_factor", lambda *_: D_IN**0.5 / 7.5),
    ):
        return sae_lens.SAE.from_pretrained("a-publisher/gemma-scope-2-1b-pt", name, converter=loader)


def load_torch(path: str) -> dict:
    return {name: torch.from_numpy(array) for name, array in load_file(path).items()}


def make(folder: str, seed: int = 0, d_sae: int = D_SAE, vectors: int = 6, dtype=torch.float32) -> dict:
    """Writes the autoencoders, and returns the contents of expected.npz."""
    rng = np.random.default_rng(seed)
    x = (3 * rng.normal(size=(vectors, D_IN)) + rng.normal(size=D_IN)).astype(np.float32)
    for number, name in enumerate((*ARCHITECTURES, *TRANSCODERS)):
        save(f"{folder}/{name}", name, seed + number, d_sae)
    for kind in ("batchtopk", "matryoshka_batchtopk"):
        save_trained(f"{folder}/{kind}", kind, seed, d_sae)
    save_scopes(folder, seed, d_sae)
    names = {name: changes_of(name) for name in (*ARCHITECTURES, *TRANSCODERS)}
    names |= {name: [{}] for name in ("batchtopk", "matryoshka_batchtopk", *SCOPES, LLAMA)}
    found = {"x": x}
    for name, each in names.items():
        for changes in each:
            sae = load(folder, name, changes).to(dtype=dtype)
            with torch.no_grad():
                acts = sae.encode(torch.from_numpy(x).to(dtype)).float().numpy()
            found[f"{name} {json.dumps(changes)}"] = acts
    return found


def main() -> None:
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    found = make(FOLDER)
    np.savez_compressed(f"{FOLDER}/expected.npz", **found)
    active = {name: float((acts > 0).sum(axis=1).mean()) for name, acts in found.items() if name != "x"}
    print("\n".join(f"{name}: {mean:.1f} active of {D_SAE}" for name, mean in active.items()), flush=True)


if __name__ == "__main__":
    main()
