"""The models and accelerators that are measured: configurations only, no weights."""

_QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "rope_theta": 1e6,
}
_QWEN_7B = _QWEN | {
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
}
_QWEN_4B = _QWEN | {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
_LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "rope_theta": 5e5,
    "rms_norm_eps": 1e-5,
}
_LLAMA_70B = _LLAMA | {
    "hidden_size": 8192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
_GEMMA = {"model_type": "gemma2", "vocab_size": 256_000, "max_position_embeddings": 8192}
_GEMMA_2B = _GEMMA | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
}
_GEMMA_27B = _GEMMA | {
    "hidden_size": 4608,
    "intermediate_size": 36_864,
    "num_hidden_layers": 46,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "query_pre_attn_scalar": 144,
}
# One model of each further kind of block.
_PYTHIA = {
    "model_type": "gpt_neox",
    "hidden_size": 4096,
    "intermediate_size": 16_384,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 50_432,
    "max_position_embeddings": 2048,
    "rotary_pct": 0.25,
}
_OLMO = {
    "model_type": "olmo2",
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 100_352,
    "max_position_embeddings": 4096,
    "rope_theta": 5e5,
}
_QWEN_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "rope_theta": 1e6,
}
_GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
}
CONFIGS = {
    "Qwen2.5-0.5B": _QWEN,
    "gemma-2-2b": _GEMMA_2B,
    "Qwen3-4B": _QWEN_4B,
    "Qwen2.5-7B": _QWEN_7B,
    "Llama-3.1-8B": _LLAMA,
    "gemma-2-27b": _GEMMA_27B,
    "Llama-3.1-70B": _LLAMA_70B,
    "pythia-6.9b": _PYTHIA,
    "OLMo-2-7B": _OLMO,
    "Qwen3-30B-A3B": _QWEN_MOE,
    "gpt-oss-20b": _GPT_OSS,
}
# Types of one host, because no run of the extractor has more.
ACCELERATORS = {
    "Qwen2.5-0.5B": ("v5litepod-1", "v6e-1", "v5p-8"),
    "gemma-2-2b": ("v5litepod-1", "v6e-1", "v5p-8"),
    "Qwen3-4B": ("v6e-1",),
    "Qwen2.5-7B": ("v6e-1",),
    "Llama-3.1-8B": ("v5litepod-4", "v5litepod-8", "v6e-1", "v6e-8", "v5p-8"),
    "gemma-2-27b": ("v5litepod-4", "v5litepod-8", "v6e-4", "v6e-8", "v5p-8"),
    "Llama-3.1-70B": ("v6e-8", "v5p-8"),
    "pythia-6.9b": ("v6e-1",),
    "OLMo-2-7B": ("v5litepod-4", "v6e-1"),
    "Qwen3-30B-A3B": ("v6e-8",),
    "gpt-oss-20b": ("v6e-4",),
}
# The least allowed tokens a second of rows of the default length.
LEAST_TOKENS_PER_S = {
    ("Qwen2.5-0.5B", "v5litepod-1"): 136_000,
    ("Llama-3.1-8B", "v5litepod-8"): 74_000,
    ("Llama-3.1-8B", "v6e-1"): 31_000,
    ("gemma-2-27b", "v6e-8"): 57_000,
}
