"""Makes a tiny random model in the Hugging Face layout: `python -m gleaner_worker.model.tiny DIR [--family NAME]`.

The weights are random, but the model runs every computation of a real model. The same seed makes the same bytes.
"""

import argparse
import json
import os

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ..architecture.config import parse_config
from ..architecture.families import FAMILIES
from ..architecture.tensor_names import HEADS
from .weights.tensors import block_table, names_of, outer_table

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "vocab_size": 4096,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
}
_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 256}
_GEMMA3 = _GEMMA | {"rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
# The keys in which a family's config.json differs from the config above.
FAMILY_CONFIGS = {
    "gemma": {"architectures": ["GemmaForCausalLM"], "hidden_act": "gelu", "head_dim": 32, "rope_theta": 10000.0},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 50.0, "rope_theta": 10000.0} | _GEMMA,
    "gemma3_text": {"architectures": ["Gemma3ForCausalLM"], "sliding_window_pattern": 6} | _GEMMA3,
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "hidden_act": "gelu_new", "max_position_embeddings": 2048},
    "gpt_neox": {"architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu", "rotary_pct": 0.25},
    "gpt_oss": {"architectures": ["GptOssForCausalLM"], "head_dim": 32, "sliding_window": 128} | _EXPERTS,
    "granite": {
        "architectures": ["GraniteForCausalLM"],
        "attention_multiplier": 0.2,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
    },
    "llama": {"architectures": ["LlamaForCausalLM"], "rope_theta": 500000.0, "rope_scaling": _LLAMA3},
    "mistral": {"architectures": ["MistralForCausalLM"], "rope_theta": 10000.0, "sliding_window": 256},
    "mixtral": {"architectures": ["MixtralForCausalLM"]} | _EXPERTS,
    "olmo2": {"architectures": ["Olmo2ForCausalLM"]},
    "olmo3": {"architectures": ["Olmo3ForCausalLM"], "sliding_window": 256},
    "olmoe": {"architectures": ["OlmoeForCausalLM"], "pad_token_id": None} | _EXPERTS,
    "phi3": {
        "architectures": ["Phi3ForCausalLM"],
        "pad_token_id": None,  # the default is no token of a small vocabulary
        "partial_rotary_factor": 0.75,
        "sliding_window": 256,
    },
    "qwen2": {},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "head_dim": 64},
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], "moe_intermediate_size": 64, "norm_topk_prob": True}
    | {"mlp_only_layers": [1]}  # a dense layer among mixtures
    | _EXPERTS,
    "smollm3": {"architectures": ["SmolLM3ForCausalLM"], "pad_token_id": None},
}
# One line per turn. Names of roles have no tokens of their own, because the model is untrained.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + eos_token + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
_WORDS = (
    "the a an of to and in is it that he she they has have had how many much more each every day week year for "
    "from with were was are at on by as his her their there then than if does do did will would can cost costs "
    "price dollars apples eggs books pages miles hours minutes people students children friends total left gave "
    "took bought sold makes needs wants first second third half twice three times number one two five ten per all "
    "some other spent money buys"
).split()


def main(options: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m gleaner_worker.model.tiny", description=__doc__)
    parser.add_argument("dir", help="folder to write; made when it does not exist")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16", help="of the stored weights")
    parser.add_argument("--family", choices=FAMILY_CONFIGS, default="qwen2")
    args = parser.parse_args(options)
    make_tiny_model(args.dir, args.seed, args.dtype, family_config(args.family))


def family_config(family: str, **changes) -> dict:
    """The config.json of a tiny model of this family, with changes to keys of CONFIG."""
    shared = CONFIG | {"model_type": family} | FAMILY_CONFIGS[family] | changes
    names = FAMILIES[family].renamed
    return {names.get(key, key): value for key, value in shared.items() if names.get(key, key)}


def make_tiny_model(folder: str, seed: int = 0, dtype: str = "bf16", config: dict = CONFIG) -> None:
    """Writes the config, the tokenizer and the weights to `folder`. dtype: of the weights, bf16 or fp32."""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    tokenizer = _train_tokenizer(rng, config["vocab_size"])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    target = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float32)
    weights = os.path.join(folder, "model.safetensors")
    save_file(_weights(rng, target, config), weights, metadata={"format": "pt"})
    os.chmod(weights, 0o644)
    _write_json(folder, "config.json", config | {"torch_dtype": "bfloat16" if dtype == "bf16" else "float32"})
    _write_json(
        folder,
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": parse_config(config, folder).max_positions,
            "eos_token": "<|endoftext|>",
            "chat_template": _CHAT_TEMPLATE,
        },
    )


def _write_json(folder: str, name: str, value: dict) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def _weights(rng: np.random.Generator, dtype: np.dtype, raw_config: dict) -> dict[str, np.ndarray]:
    """Norms and biases are random too: with ones and zeros, a decoder without norms and biases would seem right."""
    config = parse_config(raw_config, "the tiny model")
    names, tensors = names_of(config), {}
    shapes = {name: shape for name, (_, shape) in outer_table(config, "norm" if config.is_tied else "head").items()}
    for layer in range(config.num_layers):
        shapes |= {
            f"{names.layers}{layer}.{name}": tensor.shape for name, tensor in block_table(config, layer).tensors.items()
        }
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if name.endswith("bias"):
            values *= 0.1
        elif "norm" in name or "ln_" in name:
            values = 1 - config.norm_offset + 0.1 * values
        elif name != names.embedding:
            values /= np.sqrt(shape[-1])
        tensors[name if name in HEADS else names.prefixes[0] + name] = values.astype(dtype)
    return tensors


def _train_tokenizer(rng: np.random.Generator, vocab_size: int) -> Tokenizer:
    """Byte-level BPE that merges runs of digits, so that a grid's row is a few tokens instead of one per cell."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([_task_text(rng) for _ in range(300)] + [_english(rng) for _ in range(300)], trainer)
    return tokenizer


def _task_text(rng: np.random.Generator) -> str:
    """Grids as numbered rows of digits, like those of ARC prompts. The code is separate from that of prompts, so that
    the model stays the same when prompts change."""

    def grid() -> str:
        height, width = rng.integers(3, 20, 2)
        cells = rng.choice(10, size=(height, width), p=[0.64] + [0.04] * 9)
        # Beside background, grids mostly hold horizontal lines of one colour.
        for row in range(height):
            if rng.random() < 0.3:
                cells[row, : rng.integers(1, width + 1)] = rng.integers(10)
        rows = [f"{number} {''.join(map(str, row))}\n" for number, row in enumerate(cells.tolist(), 1)]
        return f"{height}x{width}\n{''.join(rows)}"

    parts = ["Each example turns an input grid into an output grid.\n"]
    parts += [f"\nExample {number}\ninput {grid()}output {grid()}" for number in (1, 2, 3)]
    return "".join(parts) + f"\nTest\ninput {grid()}output\n"


def _english(rng: np.random.Generator) -> str:
    words = [str(word) if rng.random() > 0.08 else str(rng.integers(1, 500)) for word in rng.choice(_WORDS, 60)]
    return " ".join(words).capitalize() + "."


if __name__ == "__main__":
    main()
