"""Makes golden/: tiny random models of every family, and the results of transformers. A person runs this script.

    uv venv /tmp/golden && uv pip install --python /tmp/golden/bin/python -r test/worker/golden-requirements.txt
    /tmp/golden/bin/python test/worker/make_golden.py [NAME ...]

A folder is one model as the Hub has it. Some have the keys of old config.json files, and some the keys of transformers
5. expected.npz beside it holds the token ids, and each site of each layer, in fp32: of every token for the stream and
its sums, of every STEP-th token for the parts of a block. transformers reads the folder itself, so the fixtures also
show its reading of an old file. generated.json of some models has the tokens that transformers generates.
"""

import json
import os
import re
import shutil
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "worker-startup"), os.path.join(HERE, "..", "reference")]
from transformers_model import make_folder

from gleaner_worker.model.config import parse_config
from gleaner_worker.model.sites import SITES, Capture
from gleaner_worker.reference import transformers_model as reference

FOLDER = os.path.join(HERE, "golden")
WHOLE, STEP = SITES[:5], 5
LENGTH, WINDOW = 100, 24  # more than four windows: a short prompt cannot show a wrong window
COMMON = {
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
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
        QWEN | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
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
            "hidden_act": "silu",
            "num_attention_heads": 6,
            "hidden_size": 18,
            "head_dim": 16,
            "rms_norm_eps": 1e-5,
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
            "hidden_act": "silu",
            "head_dim": None,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "sliding_window": WINDOW,
            "tie_word_embeddings": False,
        },
        {"dtype": torch.bfloat16},
    ),
    "gemma": (
        # "gelu" is the tanh approximation.
        {key: value for key, value in GEMMA.items() if key not in _NOT_GEMMA}
        | {"model_type": "gemma", "num_hidden_layers": 2, "num_key_value_heads": 1, "hidden_act": "gelu"},
        {"dtype": torch.bfloat16},
    ),
    "gemma2": (
        GEMMA
        | {
            "model_type": "gemma2",
            "num_hidden_layers": 4,
            "hidden_act": "gelu_pytorch_tanh",
            "rope_theta": 10000.0,
            "attn_logit_softcapping": 2.0,  # small, so that it has an effect on results of small weights
            "final_logit_softcapping": 30.0,
        },
        {"dtype": torch.bfloat16},
    ),
    "gemma3-text": (
        GEMMA
        | {
            "model_type": "gemma3_text",
            "num_hidden_layers": 7,
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
                "rope_theta": 1000000.0,
                "rope_local_base_freq": 10000.0,
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
        },
        {"rename": old_names},
    ),
    "olmo2": (
        SMALL | {"model_type": "olmo2", "attention_bias": True, "rope_theta": 500000.0},
        {"dtype": torch.bfloat16},
    ),
    "olmo3": (
        SMALL
        | {
            "model_type": "olmo3",
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
            "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 3.0, 9.0]},
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
        },
        {"dtype": torch.bfloat16},
    ),
    "smollm3": (
        # The layer without rope has a window.
        SMALL
        | {
            "model_type": "smollm3",
            "num_hidden_layers": 3,
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
            "scale_attn_by_inverse_layer_idx": True,
        },
        {"dtype": torch.bfloat16, "extra": {"transformer.h.0.attn.bias": torch.ones(1, 1, 2, 2)}},
    ),
    "gpt-neox": (
        SMALL
        | {
            "model_type": "gpt_neox",
            "hidden_size": 40,
            "num_key_value_heads": None,
            "hidden_act": "gelu",
            "rotary_pct": 0.4,
            "layer_norm_eps": 1e-5,
            "use_parallel_residual": True,
        },
        {"dtype": torch.bfloat16},
    ),
    "mixtral": (
        SMALL | {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5},
        {"dtype": torch.bfloat16},
    ),
    "olmoe": (
        SMALL
        | {"model_type": "olmoe", "num_experts": 5, "num_experts_per_tok": 3, "clip_qkv": 1.5, "rms_norm_eps": 1e-5},
        {"dtype": torch.bfloat16},
    ),
    "qwen3-moe": (
        # A dense layer between mixtures.
        SMALL
        | {
            "model_type": "qwen3_moe",
            "num_hidden_layers": 3,
            "head_dim": 6,
            "moe_intermediate_size": 12,
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "norm_topk_prob": False,
            "mlp_only_layers": [1],
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
            "swiglu_limit": 1.0,
            "max_position_embeddings": 4096,
            "rope_scaling": YARN | {"truncate": False},
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        },
        {"dtype": torch.bfloat16},
    ),
}


PROMPTS, NEW_TOKENS = (3, 41, 100), 24
# folder -> the penalty of repetitions, and how many tokens of the first answer come before the token that ends answers
GENERATED = {
    "gemma3-text": (1.0, None),
    "gpt-neox": (1.3, None),
    "gpt-oss": (1.0, None),
    "gpt2": (1.1, None),
    "olmo2": (1.0, None),
    "qwen3-moe": (1.0, 8),
}


def write_answers(folder: str, token_ids: np.ndarray, penalty: float, before: int | None) -> None:
    """generated.json: prompts, as numbers of the first token ids, and the answers of `generate` without sampling."""
    model = reference.load(folder)

    def answers(ends: list[int]) -> list[list[int]]:
        each = []
        for length in PROMPTS:
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
    content = {"prompts": PROMPTS, "new_tokens": NEW_TOKENS, "ends": ends, "repetition_penalty": penalty}
    with open(os.path.join(folder, "generated.json"), "w", encoding="utf-8") as file:
        json.dump(content | {"answers": answers(ends)}, file)
        file.write("\n")


def main() -> None:
    for seed, (name, (config, special)) in enumerate(MODELS.items()):
        if name not in (sys.argv[1:] or MODELS):
            continue
        folder = os.path.join(FOLDER, name)
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder, config, seed, **special)
        text = config.get("text_config", config)
        token_ids = np.random.default_rng(seed).integers(0, text["vocab_size"] - 1, LENGTH).astype(np.int32)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            decoder = parse_config(json.load(file), name)
        capture = Capture(decoder, tuple(range(decoder.num_layers)), SITES, "all", "fp32")
        found = reference.run(reference.load(folder), token_ids, capture.names)
        sites = {
            site: np.stack([found[site, layer][:: 1 if site in WHOLE else STEP] for layer in capture.layers_of(site)])
            for site in SITES
            if capture.layers_of(site)
        }
        np.savez_compressed(os.path.join(folder, "expected.npz"), token_ids=token_ids, **sites)
        if name in GENERATED:
            write_answers(folder, token_ids, *GENERATED[name])
        print(name, {site: values.shape for site, values in sites.items()})


if __name__ == "__main__":
    main()
