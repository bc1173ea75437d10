"""Models of any family as transformers makes them: filled with random weights, saved as on the Hub, run with hooks.

Needs torch and transformers; see requirements.in.
"""

import json
import os
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Mxfp4Config
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

SITES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")


def make_folder(folder, raw_config, seed, dtype=torch.float32, rename=lambda name: name, extra=None, shards=1):
    """Writes config.json as given, and random weights of that model in `dtype`, with names from `rename`."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(raw_config, file, indent=2)
        file.write("\n")
    config = AutoConfig.from_pretrained(folder)
    config.__dict__.pop("quantization_config", None)
    model = _class_of(folder).from_config(config, dtype=torch.float32)
    fill(model, seed)
    packed = pack_experts(model, seed) if raw_config.get("quantization_config") else {}
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)  # with the names of the Hub, which may not be those of the modules
        tensors = load_file(os.path.join(saved, "model.safetensors"))
    replaced = {name.rpartition("_")[0] for name in packed}
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items() if name not in replaced} | packed
    save(folder, {rename(name): tensor for name, tensor in tensors.items()} | (extra or {}), shards)


def _class_of(folder):
    multimodal = getattr(AutoConfig.from_pretrained(folder), "vision_config", None) is not None
    return AutoModelForImageTextToText if multimodal else AutoModelForCausalLM


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


def load(folder, dtype=torch.float32, attention="eager"):
    """transformers' own reading of the folder; missing and unknown tensors are errors."""
    is_packed = getattr(AutoConfig.from_pretrained(folder), "quantization_config", None) is not None
    unpack = {"quantization_config": Mxfp4Config(dequantize=True)} if is_packed else {}
    model, info = _class_of(folder).from_pretrained(
        folder,
        **unpack,
        dtype=dtype,
        attn_implementation=attention,
        experts_implementation="eager",
        output_loading_info=True,
    )
    strange = [name for name in info["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq")]
    if info["missing_keys"] or info["mismatched_keys"] or strange:
        raise ValueError(f"transformers does not take {folder} as it is: {info}")
    return model.eval()


def run(model, token_ids):
    """{site: fp32 [layers, T, d_model]} of one sequence, by hooks on every layer.

    transformers' own hidden_states cannot replace the hooks: the last of them is after the final norm.
    """
    text = model.get_decoder()
    seen = {site: [] for site in SITES}

    def keep(site, value, scale=1.0):
        seen[site].append((value[0] if isinstance(value, tuple) else value)[0].float().numpy() * np.float32(scale))

    def on_input(site):
        return lambda _module, args, kwargs: keep(site, args[0] if args else kwargs["hidden_states"])

    def on_output(site, scale=1.0):
        return lambda _module, _args, value: keep(site, value, scale)

    hooks = []
    for layer in text.layers if hasattr(text, "layers") else text.h:
        modules = dict(layer.named_children())
        scale = getattr(layer, "residual_multiplier", 1.0)
        has_post_norms = "post_feedforward_layernorm" in modules

        def first(*names, modules=modules):
            return next(modules[name] for name in names if name in modules)

        adds_attention = first(*["post_attention_layernorm"] * has_post_norms, "self_attn", "attn", "attention")
        adds_mlp = first("post_feedforward_layernorm", "mlp")
        before_mlp = first("pre_feedforward_layernorm", *["mlp"] * has_post_norms, "post_attention_layernorm", "ln_2")
        hooks += [
            layer.register_forward_pre_hook(on_input("resid_pre"), with_kwargs=True),
            before_mlp.register_forward_pre_hook(on_input("resid_mid"), with_kwargs=True),
            layer.register_forward_hook(on_output("resid_post")),
            adds_attention.register_forward_hook(on_output("attn_out", scale)),
            adds_mlp.register_forward_hook(on_output("mlp_out", scale)),
        ]
    with torch.no_grad():
        text(torch.as_tensor(np.asarray(token_ids))[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    sites = {site: np.stack(values) for site, values in seen.items()}
    if getattr(model.config, "use_parallel_residual", False):
        sites["resid_mid"] = sites["resid_pre"] + sites["attn_out"]  # which no module of a parallel block receives
    return sites
