"""Makes golden/: a fixed small model of every family, and the results of transformers. A person runs this script.

    node test/reference/run.ts --make-golden [NAME ...]

A folder is one model as the Hub has it. Its config.json turns on what its family reads: a key that no model turns on
would be compared by chance alone. Some have the keys of old config.json files, and some the keys of transformers 5.
expected.npz beside it holds the token ids, and each site of each layer, in fp32, of every STEP-th token. transformers
reads the folder itself, so the fixtures also show its reading of an old file. expected.json has the tokens that
transformers generates, and the keys of config.json that change the results of transformers.
"""

import json
import os
import re
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers import AutoConfig

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER_TESTS = os.path.join(os.path.dirname(HERE), "worker")
sys.path[:0] = [os.path.join(HERE, "..", "..", "worker-startup"), os.path.join(WORKER_TESTS, "support"), HERE]
from transformers_model import make_folder

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.sites import SITES, Capture
from gleaner_worker.reference import transformers_model as reference
from golden_models import OTHER_FORMS, STEP

FOLDER = os.path.join(WORKER_TESTS, "golden")
LENGTH, WINDOW = 100, 24  # more than four windows: a short prompt cannot show a wrong window
COMMON = {
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-4,
}
QWEN = COMMON | {"hidden_act": "silu", "rope_theta": 1000000.0, "tie_word_embeddings": True}
GEMMA = COMMON | {
    "head_dim": 8,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 12,
    "sliding_window": WINDOW,
    "attention_bias": False,
}


_NOT_GEMMA = ("hidden_activation", "query_pre_attn_scalar", "sliding_window")


def old_names(name: str) -> str:
    """Multimodal models before transformers 4.52."""
    name = re.sub(r"^model\.language_model\.", "language_model.model.", name)
    name = re.sub(r"^lm_head\.", "language_model.lm_head.", name)
    return re.sub(r"^model\.(vision_tower|multi_modal_projector)\.", r"\1.", name)


OTHER_HEAD = torch.randn(64, 16, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
SMALL = COMMON | {"num_hidden_layers": 2, "hidden_act": "silu", "pad_token_id": None}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "attention_factor": 1.2}

# folder -> (config.json, further properties)
MODELS = {
    "qwen2": (
        # As on the Hub: the window's keys are there without effect.
        QWEN | {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 24, "max_window_layers": 2},
        {},
    ),
    "qwen2-windowed": (
        QWEN
        | {
            "model_type": "qwen2",
            "head_dim": 16,
            "hidden_act": "gelu",
            "rope_theta": 500.0,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "max_window_layers": 1,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 8.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 2.0,
                "beta_slow": 0.1,
                "truncate": False,
                "mscale": 0.7,
                "mscale_all_dim": 0.4,
            },
        },
        {"dtype": torch.bfloat16},
    ),
    "qwen2-yarn": (
        QWEN
        | {
            "model_type": "qwen2",
            "hidden_size": 24,
            "head_dim": 16,
            "rope_theta": 10000.0,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        },
        {"dtype": torch.bfloat16},
    ),
    "qwen3": (
        # head_dim is not hidden_size / num_attention_heads; all biases.
        {key: value for key, value in QWEN.items() if key != "rope_theta"}
        | {
            "model_type": "qwen3",
            "head_dim": 10,
            "hidden_act": "gelu",
            "attention_bias": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        {},
    ),
    "llama2": (
        # Old files have no num_key_value_heads, no rope_theta, and buffers among their weights.
        {key: value for key, value in COMMON.items() if key != "num_key_value_heads"}
        | {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_scaling": None},
        {
            "dtype": torch.float16,
            "extra": {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(3)},
        },
    ),
    "llama3.1": (
        COMMON
        | {
            "model_type": "llama",
            "hidden_act": "relu",
            "num_attention_heads": 6,
            "hidden_size": 18,
            "head_dim": 16,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": False,
        },
        {"shards": 3},
    ),
    "mistral": (
        COMMON
        | {
            "model_type": "mistral",
            "hidden_act": "gelu_new",
            "head_dim": None,
            "rope_theta": 500.0,
            "sliding_window": WINDOW,
            "tie_word_embeddings": False,
        },
        {"dtype": torch.bfloat16},
    ),
    "gemma": (
        # "gelu" is the tanh approximation. config.json ties the head, and the file has another one, which counts.
        {key: value for key, value in GEMMA.items() if key not in _NOT_GEMMA}
        | {"model_type": "gemma", "num_hidden_layers": 2, "num_key_value_heads": 1, "hidden_act": "gelu"}
        | {"attention_bias": True, "rope_theta": 500.0},
        {"dtype": torch.bfloat16, "extra": {"lm_head.weight": OTHER_HEAD}},
    ),
    "gemma2": (
        GEMMA
        | {
            "model_type": "gemma2",
            "num_hidden_layers": 4,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu",
            "attention_bias": True,
            "rope_theta": 500.0,
            "attn_logit_softcapping": 2.0,  # small, so that it has an effect on results of small weights
            "final_logit_softcapping": 1.0,
            "tie_word_embeddings": False,
        },
        {"dtype": torch.bfloat16},
    ),
    "gemma3-text": (
        GEMMA
        | {
            "model_type": "gemma3_text",
            "num_hidden_layers": 7,
            "hidden_activation": "relu",
            "attention_bias": True,
            "final_logit_softcapping": 1.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        },
        {"dtype": torch.bfloat16},
    ),
    "gemma3-multimodal": (
        {
            "model_type": "gemma3",
            "text_config": GEMMA
            | {
                "model_type": "gemma3_text",
                "hidden_size": 20,
                "num_hidden_layers": 4,
                "rope_theta": 100000.0,
                "rope_local_base_freq": 500.0,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window_pattern": 3,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 16,
                "patch_size": 8,
            },
            "mm_tokens_per_image": 4,
            "image_token_index": 63,
            "tie_word_embeddings": False,
        },
        {"rename": old_names, "dtype": torch.bfloat16},
    ),
    "olmo2": (
        SMALL | {"model_type": "olmo2", "hidden_act": "gelu", "attention_bias": True, "rope_theta": 500000.0},
        {"dtype": torch.bfloat16},
    ),
    "olmo3": (
        SMALL
        | {
            "model_type": "olmo3",
            "hidden_act": "relu",
            "attention_bias": True,
            "rope_theta": 10000.0,
            "rope_scaling": YARN,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        {"dtype": torch.bfloat16},
    ),
    "phi3": (
        # Longer than the length before scaling, with a part of each head turned.
        SMALL
        | {
            "model_type": "phi3",
            "hidden_size": 32,
            "partial_rotary_factor": 0.75,
            "sliding_window": WINDOW,
            "original_max_position_embeddings": 64,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.5, 2.0],
                "long_factor": [1.0, 3.0, 9.0],
                "attention_factor": 1.3,
            },
        },
        {"dtype": torch.bfloat16},
    ),
    "granite": (
        SMALL
        | {
            "model_type": "granite",
            "attention_bias": True,
            "mlp_bias": True,
            "attention_multiplier": 0.8,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "logits_scaling": 4.0,
            "rope_scaling": {
                "rope_type": "longrope",
                "factor": 8.0,
                "original_max_position_embeddings": 128,
                "short_factor": [1.0, 2.0],
                "long_factor": [1.0, 4.0],
            },
        },
        {"dtype": torch.bfloat16},
    ),
    "smollm3": (
        # The layer without rope has a window.
        SMALL
        | {
            "model_type": "smollm3",
            "num_hidden_layers": 3,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "no_rope_layers": [1, 0, 1],
            "use_sliding_window": True,
            "sliding_window": WINDOW,
        },
        {"dtype": torch.bfloat16},
    ),
    "gpt2": (
        {
            "model_type": "gpt2",
            "n_embd": 20,
            "n_head": 4,
            "n_layer": 2,
            "n_positions": 128,
            "vocab_size": 64,
            "n_inner": 50,
            "activation_function": "gelu",
            "layer_norm_epsilon": 1e-3,
            "scale_attn_weights": False,
            "scale_attn_by_inverse_layer_idx": True,
            "tie_word_embeddings": False,
        },
        {"dtype": torch.bfloat16, "extra": {"transformer.h.0.attn.bias": torch.ones(1, 1, 2, 2)}},
    ),
    "gpt-neox": (
        SMALL
        | {
            "model_type": "gpt_neox",
            "hidden_size": 40,
            "num_key_value_heads": None,
            "rotary_pct": 0.4,
            "layer_norm_eps": 1e-3,
            "use_parallel_residual": True,
        },
        {"dtype": torch.bfloat16},
    ),
    "mixtral": (
        SMALL
        | {"model_type": "mixtral", "head_dim": 6, "num_local_experts": 3, "num_experts_per_tok": 1}
        | {"hidden_act": "gelu", "sliding_window": WINDOW, "rope_theta": 500.0, "tie_word_embeddings": True},
        {"dtype": torch.bfloat16},
    ),
    "olmoe": (
        SMALL
        | {"model_type": "olmoe", "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": True}
        | {"clip_qkv": 0.3, "attention_bias": True},
        {"dtype": torch.bfloat16},
    ),
    "qwen3-moe": (
        # Dense layers among mixtures, by both keys.
        SMALL
        | {
            "model_type": "qwen3_moe",
            "num_hidden_layers": 6,
            "head_dim": 6,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "decoder_sparse_step": 2,
            "moe_intermediate_size": 12,
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [3],
        },
        {"dtype": torch.bfloat16},
    ),
    "gpt-oss": (
        SMALL
        | {
            "model_type": "gpt_oss",
            "hidden_size": 32,
            "intermediate_size": 32,
            "head_dim": 8,
            "num_local_experts": 3,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "swiglu_alpha": 1.2,
            "swiglu_limit": 1.0,
            "attention_bias": False,
            "rope_theta": 10000.0,
            "layer_types": ["full_attention", "sliding_attention"],
            "max_position_embeddings": 4096,
            "rope_scaling": YARN | {"truncate": False},
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        },
        {"dtype": torch.bfloat16},
    ),
    "gpt-neox-sequential": (
        {key: value for key, value in SMALL.items() if key != "rms_norm_eps"}
        | {
            "model_type": "gpt_neox",
            "hidden_size": 32,
            "num_key_value_heads": None,
            "rotary_pct": 0.5,
            "layer_norm_eps": 1e-3,
            "hidden_act": "relu",
            "rotary_emb_base": 500.0,
            "attention_bias": False,
            "use_parallel_residual": False,
        },
        {"dtype": torch.bfloat16},
    ),
}


PROMPTS, NEW_TOKENS = (3, 41, 100), 24
# folder -> the penalty of repetitions, and how many tokens of the first answer come before the token that ends answers
GENERATED = {"gpt-neox": (1.3, None), "gpt2": (1.1, None), "qwen3-moe": (1.0, 8)}
# Without a penalty, they repeat one token.
GENERATED |= dict.fromkeys(("llama3.1", "olmo2", "olmo3", "olmoe", "qwen3"), (1.3, None))
_EFFECT = 1e-4  # the least relative change of a site


def answers_of(name: str, model, token_ids: np.ndarray) -> dict:
    """Prompts, as numbers of the first token ids, and the answers of `generate` without sampling."""
    penalty, before = GENERATED.get(name, (1.0, None))
    rope = getattr(model.config, "rope_parameters", None) or {}
    # Decoding with longrope is refused beyond the first positions.
    limit = rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else LENGTH + NEW_TOKENS
    prompts = [length for length in PROMPTS if length + NEW_TOKENS <= limit]

    def answers(ends: list[int]) -> list[list[int]]:
        each = []
        for length in prompts:
            ids = torch.as_tensor(token_ids[None, :length].astype(np.int64))
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=NEW_TOKENS,
                repetition_penalty=penalty,
                eos_token_id=ends or None,
                pad_token_id=0,
            )
            each.append(found[0, length:].tolist())
        return each

    ends = [] if before is None else [answers([])[0][before]]
    content = {"prompts": prompts, "new_tokens": NEW_TOKENS, "ends": ends, "repetition_penalty": penalty}
    return content | {"answers": answers(ends)}


def sites_of(raw: dict, model, token_ids: np.ndarray) -> dict[str, np.ndarray]:
    """{site: [layers of the site, T, width]}"""
    decoder = parse_config(raw, "a golden model")
    capture = Capture(decoder, tuple(range(decoder.num_layers)), SITES, "all", "fp32")
    found = reference.run(model, token_ids, capture.names)
    return {
        site: np.stack([found[site, layer][::STEP] for layer in capture.layers_of(site)])
        for site in SITES
        if capture.layers_of(site)
    }


def keys_with_effect(folder: str, raw: dict, token_ids: np.ndarray) -> list[str]:
    """The keys without which transformers has other results, other weights or an error; `rope_scaling.factor` is in an
    object. Also those of the other forms of this config.json, with which it has the same results."""
    before = outcome(folder, raw, token_ids)
    found = {path for path in paths(raw) if differ(before, outcome(folder, without(raw, path), token_ids))}
    for name, left_out, changed in OTHER_FORMS:
        if name == os.path.basename(folder):
            form = {key: value for key, value in raw.items() if key not in left_out} | changed
            assert not differ(before, outcome(folder, form, token_ids)), f"{name} is another model with {changed}"
            those = (path for path in paths(form) if path[0] in changed)
            found |= {path for path in those if differ(before, outcome(folder, without(form, path), token_ids))}
    return sorted(".".join(path) for path in found)


def paths(raw: dict) -> list[tuple[str, ...]]:
    """The keys of an object and of the objects in it."""
    inner = [(key, *path) for key, value in raw.items() if isinstance(value, dict) for path in paths(value)]
    return [*((key,) for key in raw), *inner]


def without(raw: dict, path: tuple[str, ...]) -> dict:
    key, *others = path
    if others:
        return raw | {key: without(raw[key], tuple(others))}
    return {name: value for name, value in raw.items() if name != key}


def outcome(folder: str, raw: dict, token_ids: np.ndarray):
    """The sites that transformers computes with this config.json and the weights of `folder`; None where the weights do
    not fit or transformers fails."""
    with tempfile.TemporaryDirectory() as other:
        for name in os.listdir(folder):
            if "safetensors" in name:
                os.symlink(os.path.join(folder, name), os.path.join(other, name))
        with open(os.path.join(other, "config.json"), "w", encoding="utf-8") as file:
            json.dump(raw, file)
        try:
            if shapes(other) != shapes(folder):  # before the weights: by default many families are large
                return None
            model = reference.load(other)
            layers = model.get_decoder().config.num_hidden_layers
            names = [(site, layer) for site in ("resid_mid", "resid_post", "attn_z") for layer in range(layers)]
            return reference.run(model, token_ids, [*names, ("top_logprobs", layers - 1)])
        except Exception:  # transformers has no error of its own for configs
            return None


def shapes(folder: str) -> dict:
    """Those of the weights, which take no memory here."""
    config = AutoConfig.from_pretrained(folder)
    config.__dict__.pop("quantization_config", None)
    with torch.device("meta"):
        model = reference.class_of(folder).from_config(config)
    return {name: tensor.shape for name, tensor in model.named_parameters()}


def differ(before: dict, after: dict | None) -> bool:
    if after is None:
        return True
    return any(np.linalg.norm(after[name] - each) > _EFFECT * np.linalg.norm(each) for name, each in before.items())


def make(name: str, folder: str) -> tuple[dict, dict]:
    """Writes the model, and returns the contents of expected.npz and of expected.json."""
    seed = list(MODELS).index(name)
    raw, special = MODELS[name]
    make_folder(folder, raw, seed, **special)
    text = raw.get("text_config", raw)
    token_ids = np.random.default_rng(seed).integers(0, text["vocab_size"] - 1, LENGTH).astype(np.int32)
    model = reference.load(folder)
    keys = keys_with_effect(folder, raw, token_ids)
    return {"token_ids": token_ids} | sites_of(raw, model, token_ids), answers_of(name, model, token_ids) | {
        "keys": keys
    }


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in sys.argv[1:] or MODELS:
        folder = os.path.join(FOLDER, name)
        shutil.rmtree(folder, ignore_errors=True)
        arrays, facts = make(name, folder)
        np.savez_compressed(os.path.join(folder, "expected.npz"), **arrays)
        with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
            json.dump(facts, file)
            file.write("\n")
        unused = [".".join(path) for path in paths(MODELS[name][0]) if ".".join(path) not in facts["keys"]]
        print(f"{name}: {len(facts['keys'])} keys have an effect, without one: {', '.join(unused)}", flush=True)


if __name__ == "__main__":
    main()
