"""The models and accelerators that are measured: configurations only, no weights."""


def shape(hidden: int, mlp: int, layers: int, heads: int, kv_heads: int | None = None) -> dict:
    """The keys of config.json with the sizes of a model. kv_heads: None for a family without the key."""
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }
    return {key: size for key, size in sizes.items() if size is not None}


def _vocabulary(tokens: int, positions: int) -> dict:
    return {"vocab_size": tokens, "max_position_embeddings": positions}


_QWEN = {"model_type": "qwen2", "rope_theta": 1e6} | shape(896, 4864, 24, 14, 2) | _vocabulary(151_936, 32_768)
_QWEN_7B = _QWEN | shape(3584, 18_944, 28, 28, 4) | {"vocab_size": 152_064}
_QWEN_4B = _QWEN | shape(2560, 9728, 36, 32, 8) | {"model_type": "qwen3", "head_dim": 128}
_LLAMA = {"model_type": "llama", "rope_theta": 5e5, "rms_norm_eps": 1e-5}
_LLAMA |= shape(4096, 14_336, 32, 32, 8) | _vocabulary(128_256, 131_072)
_LLAMA_70B = _LLAMA | shape(8192, 28_672, 80, 64, 8)
_GEMMA = {"model_type": "gemma2"} | _vocabulary(256_000, 8192)
_GEMMA_2B = _GEMMA | shape(2304, 9216, 26, 8, 4) | {"head_dim": 256, "query_pre_attn_scalar": 256}
_GEMMA_9B = _GEMMA | shape(3584, 14_336, 42, 16, 8) | {"head_dim": 256, "query_pre_attn_scalar": 256}
_GEMMA_27B = _GEMMA | shape(4608, 36_864, 46, 32, 16) | {"head_dim": 128, "query_pre_attn_scalar": 144}
# One model of each further kind of block.
_PYTHIA = {"model_type": "gpt_neox", "rotary_pct": 0.25} | shape(4096, 16_384, 32, 32) | _vocabulary(50_432, 2048)
_OLMO = {"model_type": "olmo2", "rope_theta": 5e5} | shape(4096, 11_008, 32, 32) | _vocabulary(100_352, 4096)
_QWEN_MOE = {
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "head_dim": 128,
    "rope_theta": 1e6,
}
_QWEN_MOE |= shape(2048, 6144, 48, 32, 4) | _vocabulary(151_936, 40_960)
_GPT_OSS = (
    {"model_type": "gpt_oss", "num_local_experts": 32} | shape(2880, 2880, 24, 64) | _vocabulary(201_088, 131_072)
)
_GPT_OSS_120B = _GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128}
_MIXTRAL = {"model_type": "mixtral", "rope_theta": 1e6} | shape(4096, 14_336, 32, 32, 8) | _vocabulary(32_000, 32_768)
_OLMOE = {"model_type": "olmoe"} | shape(2048, 1024, 16, 16, 16) | _vocabulary(50_304, 4096)
CONFIGS = {
    "Qwen2.5-0.5B": _QWEN,
    "gemma-2-2b": _GEMMA_2B,
    "Qwen3-4B": _QWEN_4B,
    "Qwen2.5-7B": _QWEN_7B,
    "Llama-3.1-8B": _LLAMA,
    "gemma-2-9b": _GEMMA_9B,
    "gemma-2-27b": _GEMMA_27B,
    "Llama-3.1-70B": _LLAMA_70B,
    "pythia-6.9b": _PYTHIA,
    "OLMo-2-7B": _OLMO,
    "Qwen3-30B-A3B": _QWEN_MOE,
    "gpt-oss-20b": _GPT_OSS,
    "gpt-oss-120b": _GPT_OSS_120B,
    "Mixtral-8x7B": _MIXTRAL,
    "OLMoE-1B-7B": _OLMOE,
}
# Types of one host, because no run of the extractor has more.
ACCELERATORS = {
    "Qwen2.5-0.5B": ("v5litepod-1", "v6e-1", "v5p-8"),
    "gemma-2-2b": ("v5litepod-1", "v6e-1", "v5p-8"),
    "Qwen3-4B": ("v6e-1",),
    "Qwen2.5-7B": ("v6e-1",),
    "Llama-3.1-8B": ("v5litepod-4", "v5litepod-8", "v6e-1", "v6e-8", "v5p-8"),
    "gemma-2-9b": ("v6e-1",),
    "gemma-2-27b": ("v5litepod-4", "v5litepod-8", "v6e-4", "v6e-8", "v5p-8"),
    "Llama-3.1-70B": ("v6e-8", "v5p-8"),
    "pythia-6.9b": ("v6e-1",),
    "OLMo-2-7B": ("v5litepod-4", "v6e-1"),
    "Qwen3-30B-A3B": ("v5litepod-8", "v6e-8", "v5p-8"),
    "gpt-oss-20b": ("v5litepod-8", "v6e-4", "v5p-8"),
    "gpt-oss-120b": ("v6e-8", "v5p-8"),
    "Mixtral-8x7B": ("v5litepod-8", "v6e-8", "v5p-8"),
    "OLMoE-1B-7B": ("v5litepod-1", "v6e-1", "v5p-8"),
}
# Whose settings are searched, by the widths of models in use; other chips and widths take those of the nearest.
SEARCHED = (
    ("Llama-3.1-8B", "v6e-1"),
    ("Qwen2.5-7B", "v6e-1"),
    ("gemma-2-9b", "v6e-1"),
    ("Qwen2.5-0.5B", "v6e-1"),
    ("gemma-2-27b", "v6e-8"),
    ("pythia-6.9b", "v6e-1"),
    ("Qwen3-4B", "v6e-1"),
    ("gemma-2-2b", "v6e-1"),
    ("Qwen3-30B-A3B", "v6e-8"),
    ("gpt-oss-20b", "v6e-4"),
    ("Qwen2.5-0.5B", "v5p-8"),
    ("gemma-2-2b", "v5p-8"),
    ("Llama-3.1-8B", "v5p-8"),
    ("gemma-2-27b", "v5p-8"),
    ("Qwen3-30B-A3B", "v5p-8"),
    ("gpt-oss-20b", "v5p-8"),
    ("Llama-3.1-8B", "tpu7x-8"),
)
# The least allowed tokens a second of rows of the default length.
LEAST_TOKENS_PER_S: dict[tuple, int] = {
    ("Qwen2.5-0.5B", "v5litepod-1"): 136_000,
    ("Llama-3.1-8B", "v5litepod-8"): 74_000,
    ("Llama-3.1-8B", "v6e-1"): 38_000,
    ("gemma-2-27b", "v6e-8"): 60_000,
    ("Qwen3-30B-A3B", "v6e-8"): 125_000,
    ("gpt-oss-20b", "v6e-4"): 70_000,
    # With the 64 strongest of 32,768 features of each layer in place of dense vectors.
    ("Llama-3.1-8B", "v5litepod-8", (32_768, 64)): 38_000,
    ("Llama-3.1-8B", "v6e-8", (32_768, 64)): 140_000,
}
