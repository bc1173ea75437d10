"""The activations of a model as transformers computes them, by hooks. Needs torch and transformers."""

from collections.abc import Collection

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Mxfp4Config

from ..model.tensor_names import HEADS
from ..spec import SITES


def class_of(folder: str):
    multimodal = getattr(AutoConfig.from_pretrained(folder), "vision_config", None) is not None
    return AutoModelForImageTextToText if multimodal else AutoModelForCausalLM


def load(folder: str, dtype=torch.float32, attention: str = "eager"):
    """transformers' own reading of the folder. Raises ValueError for missing and unknown tensors, but for those of
    heads."""
    is_packed = getattr(AutoConfig.from_pretrained(folder), "quantization_config", None) is not None
    unpack = {"quantization_config": Mxfp4Config(dequantize=True)} if is_packed else {}
    model, info = class_of(folder).from_pretrained(
        folder,
        **unpack,
        dtype=dtype,
        attn_implementation=attention,
        experts_implementation="eager",
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
    )
    unused = (*HEADS, "rotary_emb.inv_freq")
    strange = [name for name in info["unexpected_keys"] if not name.endswith(unused)]
    missing = [name for name in info["missing_keys"] if not name.endswith(HEADS)]
    if missing or info["mismatched_keys"] or strange:
        raise ValueError(f"transformers does not take {folder} as it is: {info}")
    return model.eval()


def run(
    model, token_ids: np.ndarray, sites: Collection[str] = SITES, layers: Collection[int] | None = None
) -> dict[str, np.ndarray]:
    """{site: fp32 [layers, T, d_model]} of one sequence, by hooks on every layer of `layers`, or on all.

    transformers' own hidden_states cannot replace the hooks: the last of them is after the final norm.
    """
    text = model.get_decoder()
    is_parallel = getattr(model.config, "use_parallel_residual", False)
    wanted = {*sites, "resid_pre", "attn_out"} if is_parallel else {*sites}
    seen: dict[str, list[np.ndarray]] = {site: [] for site in wanted}

    def keep(site, value, scale=1.0):
        if site in wanted:
            seen[site].append((value[0] if isinstance(value, tuple) else value)[0].float().numpy() * np.float32(scale))

    def on_input(site):
        return lambda _module, args, kwargs: keep(site, args[0] if args else kwargs["hidden_states"])

    def on_output(site, scale=1.0):
        return lambda _module, _args, value: keep(site, value, scale)

    hooks = []
    for number, layer in enumerate(text.layers if hasattr(text, "layers") else text.h):
        if layers is not None and number not in layers:
            continue
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
    stacked = {site: np.stack(values) for site, values in seen.items()}
    if is_parallel:
        stacked["resid_mid"] = stacked["resid_pre"] + stacked["attn_out"]  # no module of a parallel block receives it
    return {site: stacked[site] for site in sites}
