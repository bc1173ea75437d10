"""Models of any family as transformers makes them: filled with random weights, and saved as on the Hub.

Needs torch and transformers; see requirements.in.
"""

import json
import os
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from gleaner_worker.reference.transformers_model import class_of


def make_folder(folder, raw_config, seed, dtype=torch.float32, rename=lambda name: name, extra=None, shards=1):
    """Writes config.json as given, and random weights of that model in `dtype`, with names from `rename`."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(raw_config, file, indent=2)
        file.write("\n")
    config = AutoConfig.from_pretrained(folder)
    config.__dict__.pop("quantization_config", None)
    model = class_of(folder).from_config(config, dtype=torch.float32)
    fill(model, seed)
    packed = pack_experts(model, seed) if raw_config.get("quantization_config") else {}
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)  # with the names of the Hub, which may not be those of the modules
        tensors = load_file(os.path.join(saved, "model.safetensors"))
    replaced = {name.rpartition("_")[0] for name in packed}
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items() if name not in replaced} | packed
    save(folder, {rename(name): tensor for name, tensor in tensors.items()} | (extra or {}), shards)


def fill(model, seed):
    """Norms and biases are random too: a decoder that ignores them must fail the comparison."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name or ".ln_" in name:
                # Gemma's norms weigh by 1 + w; the weight of both kinds starts at 1.
                tensor.copy_(tensor.mean().round() + 0.2 * noise)
            elif name.endswith("bias"):
                tensor.copy_(0.2 * noise)
            elif "embed" in name or ".wte." in name or ".wpe." in name:
                tensor.copy_(0.05 * noise)  # small, so that a wrong epsilon has an effect
            else:
                tensor.copy_(1.2 / tensor.shape[-1] ** 0.5 * noise)


def pack_experts(model, seed):
    """Random MXFP4 tensors, by their names in the file; the model gets the values that transformers reads from them."""
    generator = torch.Generator().manual_seed(seed)
    packed = {}
    for name, tensor in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, into, out = tensor.shape
            blocks = torch.randint(0, 256, (experts, out, into // 32, 16), dtype=torch.uint8, generator=generator)
            scales = torch.randint(122, 126, blocks.shape[:3], dtype=torch.uint8, generator=generator)
            with torch.no_grad():
                tensor.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    return packed


def save(folder, tensors, shards):
    if shards == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    names = sorted(tensors)
    parts = {name: i * shards // len(names) + 1 for i, name in enumerate(names)}
    files = {name: f"model-{part:05}-of-{shards:05}.safetensors" for name, part in parts.items()}
    for file in set(files.values()):
        part = {name: tensors[name] for name in names if files[name] == file}
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": size}, "weight_map": files}, file, indent=2)
        file.write("\n")
