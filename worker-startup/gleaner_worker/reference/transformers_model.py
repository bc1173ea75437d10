"""The activations of a model as transformers computes them, by hooks. Needs torch and transformers."""

import sys
from collections.abc import Callable, Collection

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Mxfp4Config

from ..architecture.tensor_names import HEADS, SCORES


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
    unused = (*HEADS, *SCORES, "rotary_emb.inv_freq")
    strange = [name for name in info["unexpected_keys"] if not name.endswith(unused)]
    missing = [name for name in info["missing_keys"] if not name.endswith((*HEADS, *SCORES))]
    if missing or info["mismatched_keys"] or strange:
        raise ValueError(f"transformers does not take {folder} as it is: {info}")
    return model.eval()


_OF_LOGITS = ("top_tokens", "top_logprobs", "loss")


def run(
    model, token_ids: np.ndarray, names: Collection[tuple[str, int]], top_k: int = 20
) -> dict[tuple[str, int], np.ndarray]:
    """{(site, layer): fp32 [T, width]} of one sequence, by hooks on the blocks.

    transformers' own hidden_states cannot replace the hooks: the last of them is after the final norm.
    """
    text = model.get_decoder()
    is_parallel = getattr(model.config, "use_parallel_residual", False)
    seen: dict[tuple[str, int], np.ndarray] = {}
    hooks: list[Callable[[], None]] = []
    blocks = text.layers if hasattr(text, "layers") else text.h
    attentions = {}
    for number, layer in enumerate(blocks):
        block = _Block(number, layer, seen)
        block.hook()
        hooks += block.hooks
        attentions[block.attention] = block
    module = sys.modules[type(next(iter(attentions))).__module__]
    attend = module.eager_attention_forward

    def recorded(attention, query, key, *args, **kwargs):
        attentions[attention].keep_heads("rot_q", query)
        attentions[attention].keep_heads("rot_k", key)
        return attend(attention, query, key, *args, **kwargs)

    first, last = _Block(0, blocks[0], seen), _Block(len(blocks) - 1, blocks[-1], seen)
    modules = dict(text.named_children())
    final_norm = next(modules[name] for name in ("norm", "ln_f", "final_layer_norm") if name in modules)
    last.on_output(final_norm, "final_norm")
    if "wte" in modules:
        first.on_output(modules["wte"], "embeddings")
    else:
        first.on_input(blocks[0], "embeddings")
    setattr(module, "eager_attention_forward", recorded)  # noqa: B010 - modules of transformers have no types
    ids = torch.as_tensor(np.asarray(token_ids, np.int64))[None]
    try:
        with torch.no_grad():
            if any(site in _OF_LOGITS for site, _ in names):
                last.keep_next_tokens(model(ids, use_cache=False).logits[0].float(), ids[0], top_k)
            else:
                text(ids, use_cache=False)
    finally:
        setattr(module, "eager_attention_forward", attend)  # noqa: B010
        for remove in [*hooks, *first.hooks, *last.hooks]:
            remove()
    for number in range(len(blocks)):
        if is_parallel:  # no module of a parallel block receives the sum
            seen["resid_mid", number] = seen["resid_pre", number] + seen["attn_out", number]
        if "wte" in modules:  # learned positions turn no heads
            seen["rot_q", number], seen["rot_k", number] = seen["q", number], seen["k", number]
    return {name: seen[name] for name in names}


class _Block:
    """Hooks that keep the sites of one block in `seen`."""

    def __init__(self, number: int, layer, seen: dict[tuple[str, int], np.ndarray]):
        self._number, self._layer, self._seen = number, layer, seen
        self._modules = dict(layer.named_children())
        self.attention = self._first("self_attn", "attn", "attention")
        self.hooks: list[Callable[[], None]] = []

    def _first(self, *names: str, of: dict | None = None):
        modules = self._modules if of is None else of
        return next(modules[name] for name in names if name in modules)

    def keep(self, site: str, value, scale: float = 1.0) -> None:
        value = value[0] if isinstance(value, tuple) else value
        value = value[0] if value.ndim == 3 else value
        self._seen[site, self._number] = value.float().numpy() * np.float32(scale)

    def keep_heads(self, site: str, heads) -> None:
        """heads: [1, N, T, H]."""
        self.keep(site, heads.transpose(1, 2).flatten(2))

    def keep_next_tokens(self, logits, ids, top_k: int) -> None:
        """logits: fp32 [T, V]. The last token predicts nothing."""
        logprobs = torch.log_softmax(logits, -1)
        top = logprobs.topk(top_k)
        loss = -logprobs[:-1].gather(1, ids[1:, None])
        self.keep("top_tokens", top.indices)
        self.keep("top_logprobs", top.values)
        self.keep("loss", torch.nn.functional.pad(loss, (0, 0, 0, 1)))

    def on_input(self, module, site: str) -> None:
        hook = module.register_forward_pre_hook(
            lambda _module, args, kwargs: self.keep(site, args[0] if args else kwargs["hidden_states"]),
            with_kwargs=True,
        )
        self.hooks.append(hook.remove)

    def on_output(self, module, site: str, scale: float = 1.0) -> None:
        self.hooks.append(
            module.register_forward_hook(lambda _module, _args, value: self.keep(site, value, scale)).remove
        )

    def hook(self) -> None:
        modules, scale = self._modules, getattr(self._layer, "residual_multiplier", 1.0)
        has_post_norms = "post_feedforward_layernorm" in modules
        adds_attention = self._first(*["post_attention_layernorm"] * has_post_norms, "self_attn", "attn", "attention")
        before_mlp = self._first(
            "pre_feedforward_layernorm", *["mlp"] * has_post_norms, "post_attention_layernorm", "ln_2"
        )
        self.on_input(self._layer, "resid_pre")
        self.on_input(before_mlp, "resid_mid")
        self.on_output(self._layer, "resid_post")
        self.on_output(adds_attention, "attn_out", scale)
        self.on_output(self._first("post_feedforward_layernorm", "mlp"), "mlp_out", scale)
        self._hook_attention()
        self._hook_mlp(modules["mlp"])

    def _hook_attention(self) -> None:
        of = dict(self.attention.named_children())
        self.on_input(self._first("o_proj", "c_proj", "dense", of=of), "attn_z")
        if "q_proj" in of:
            for site in "qkv":
                self.on_output(of[f"{site}_proj"], site)
            return

        def split(module, _args, value) -> None:
            if module is of.get("query_key_value"):  # head by head
                by_head = value.unflatten(2, (-1, 3, self.attention.head_size)).unbind(3)
                parts = [part.flatten(2) for part in by_head]
            else:
                config = self.attention.config
                keys = getattr(config, "num_key_value_heads", config.num_attention_heads) * self.attention.head_dim
                parts = value.split([value.shape[-1] - 2 * keys, keys, keys], dim=-1)
            for site, part in zip("qkv", parts, strict=True):
                self.keep(site, part)

        fused = self._first("qkv_proj", "c_attn", "query_key_value", of=of)
        self.hooks.append(fused.register_forward_hook(split).remove)

    def _hook_mlp(self, mlp) -> None:
        of = dict(mlp.named_children())
        self.on_input(mlp, "mlp_in")
        if "experts" not in of:
            self.on_input(self._first("down_proj", "c_proj", "dense_4h_to_h", of=of), "mlp_neurons")
            return

        def keep(_module, _args, value) -> None:
            logits, _, chosen = value
            self.keep("router_logits", logits)
            self.keep("experts", chosen)

        self.hooks.append(self._first("gate", "router", of=of).register_forward_hook(keep).remove)
