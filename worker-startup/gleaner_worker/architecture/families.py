"""The model families as data: the properties that the code of transformers fixes, and those that config.json decides.

Source: transformers 5.24, models/{gemma,gemma2,gemma3,gpt2,gpt_neox,gpt_oss,granite,llama,mistral,mixtral,olmo2,olmo3,
olmoe,phi3,qwen2,qwen3,qwen3_moe,smollm3}. test/worker/golden holds the results of that code for each family.
"""

from dataclasses import dataclass, field, replace

from . import tensor_names as names
from .tensor_names import TensorNames

# The types of layers in config.json.
FULL: str = "full_attention"
SLIDING: str = "sliding_attention"
ROPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class Family:
    """The properties of one `model_type`."""

    # The rule for layers with a window, where config.json has no layer_types: see config.py.
    windows: str
    # The defaults of transformers for missing keys, beside those of SIZES.
    defaults: dict = field(default_factory=dict)
    # The keys of NEUTRAL that this family supports.
    reads: frozenset[str] = frozenset()
    # The keys that have another name in this family's files: {name here: name in the file, empty for no such key}.
    renamed: dict[str, str] = field(default_factory=dict)
    aliases: frozenset[str] = frozenset()  # keys of `renamed` that files may have under both names
    tensors: TensorNames = names.LLAMA
    ropes: tuple[str, ...] = ROPES  # the supported kinds; none: learned positions
    biases: frozenset[str] = (
        frozenset()
    )  # of "qkv", "o" and "mlp": always. `reads` decides whether the file may add some
    layer_norm: bool = False  # norms subtract the mean and have biases
    qk_norm: str | None = None  # over each "head", or over the heads of a token "together"
    pre_norms: bool = True  # before attention and MLP
    post_norms: bool = False  # after attention and MLP
    norm_rounds_last: bool = False  # norms apply their weights in fp32 and then round
    gated: bool = True  # the MLP has a gate
    experts: str | None = None  # mixtures: the weights of chosen experts add up to 1 "always", or if the file says so
    sinks: bool = False  # a score of each head that no token has
    gemma: bool = False  # norms of 1 + w; scaled embeddings
    gelu_is_tanh: bool = False  # "gelu" in a file is the tanh approximation
    local_rope: bool = False  # layers with a window have frequencies of their own
    inner: str | None = None  # the key of the text model's config in files of several modalities


# The defaults of every family, unless the family has its own.
DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 1e4,
    "partial_rotary_factor": 1.0,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "tie_word_embeddings": False,
}
_QWEN = {"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA2 = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
_GEMMA3 = _GEMMA2 | {
    "sliding_window_pattern": 6,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
}

QWEN2 = Family(
    "above max_window_layers", _QWEN, frozenset({"sliding_window", "attention_bias"}), biases=frozenset({"qkv"})
)
QWEN3 = Family(
    "above max_window_layers",
    _QWEN | {"head_dim": 128},
    frozenset({"sliding_window", "attention_bias", "use_qk_norm"}),
    qk_norm="head",
)
LLAMA = Family("nowhere", reads=frozenset({"attention_bias", "mlp_bias"}))
MISTRAL = Family("everywhere", {"num_key_value_heads": 8, "sliding_window": 4096}, frozenset({"sliding_window"}))
GEMMA = Family(
    "nowhere",
    {"num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    frozenset({"attention_bias"}),
    norm_rounds_last=True,
    gemma=True,
    gelu_is_tanh=True,
)
GEMMA2 = Family(
    "every other layer",
    _GEMMA2 | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    frozenset({"sliding_window", "attention_bias", "attn_logit_softcapping", "final_logit_softcapping"}),
    {"hidden_act": "hidden_activation"},
    tensors=names.SANDWICH,
    post_norms=True,
    norm_rounds_last=True,
    gemma=True,
)
GEMMA3_TEXT = replace(
    GEMMA2,
    windows="all but every sliding_window_pattern-th",
    defaults=_GEMMA3,
    reads=frozenset({"sliding_window", "attention_bias", "rope_local_base_freq", "final_logit_softcapping"}),
    qk_norm="head",
    local_rope=True,
)
# The model of several modalities leaves the soft cap of its logits out.
GEMMA3 = replace(GEMMA3_TEXT, inner="text_config", reads=GEMMA3_TEXT.reads - {"final_logit_softcapping"})
OLMO2 = Family(
    "nowhere",
    {"rms_norm_eps": 1e-5},
    frozenset({"attention_bias"}),
    tensors=names.SANDWICH,
    qk_norm="together",
    pre_norms=False,
    post_norms=True,
    norm_rounds_last=True,
)
OLMO3 = replace(
    OLMO2,
    windows="all but every 4th",
    # rope_theta of an old file is that of the layers with full attention; no key decides about the others.
    defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 5e5, "rope_local_base_freq": 5e5},
    reads=frozenset({"sliding_window", "attention_bias"}),
    local_rope=True,
)
OLMOE = Family(
    "nowhere",
    {"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
    frozenset({"attention_bias", "clip_qkv", "num_experts", "num_local_experts"}),
    {"num_local_experts": "num_experts", "moe_intermediate_size": "intermediate_size"},
    frozenset({"num_local_experts"}),
    names.QWEN3_MOE,
    qk_norm="together",
    experts="norm_topk_prob",
)
PHI3 = Family(
    "everywhere",
    {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    frozenset({"sliding_window", "partial_rotary_factor"}),
    tensors=names.PHI3,
    ropes=("default", "longrope"),
)
GRANITE = Family(
    "nowhere",
    {"attention_multiplier": 1.0, "logits_scaling": 1.0},
    frozenset({"attention_bias", "mlp_bias", "attention_multiplier", "embedding_multiplier", "residual_multiplier"}),
)
SMOLLM3 = Family(
    "without rope",
    {"num_key_value_heads": 4, "rope_theta": 2e6, "use_sliding_window": False, "no_rope_layer_interval": 4}
    | {"tie_word_embeddings": True},
    frozenset({"sliding_window", "attention_bias", "mlp_bias", "no_rope_layers"}),
)
GPT2 = Family(
    "nowhere",
    {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True}
    | {"tie_word_embeddings": True},
    frozenset({"scale_attn_weights", "scale_attn_by_inverse_layer_idx"}),
    {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
        "hidden_act": "activation_function",
        "rms_norm_eps": "layer_norm_epsilon",
        "head_dim": "",
        "num_key_value_heads": "",
    },
    frozenset({"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}),
    names.GPT2,
    ropes=(),
    biases=frozenset({"qkv", "o", "mlp"}),
    layer_norm=True,
    gated=False,
)
GPT_NEOX = Family(
    "nowhere",
    {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "rotary_emb_base": 1e4,
        "rotary_pct": 0.25,
        "attention_bias": True,
        "use_parallel_residual": True,
    },
    frozenset({"attention_bias", "partial_rotary_factor", "use_parallel_residual"}),
    {
        "rms_norm_eps": "layer_norm_eps",
        "rope_theta": "rotary_emb_base",
        "partial_rotary_factor": "rotary_pct",
        "head_dim": "",
        "num_key_value_heads": "",
    },
    tensors=names.GPT_NEOX,
    biases=frozenset({"mlp"}),
    layer_norm=True,
    gated=False,
)
MIXTRAL = Family(
    "everywhere",
    {
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    frozenset({"sliding_window", "num_local_experts", "num_experts"}),
    {"num_experts": "num_local_experts", "moe_intermediate_size": "intermediate_size"},
    frozenset({"num_experts"}),
    names.MIXTRAL,
    experts="always",
)
QWEN3_MOE = Family(
    "everywhere",
    {
        "num_key_value_heads": 4,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "num_local_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
    },
    frozenset({"sliding_window", "attention_bias", "num_local_experts", "num_experts", "moe_intermediate_size"})
    | {"decoder_sparse_step", "mlp_only_layers", "use_qk_norm"},
    {"num_experts": "num_local_experts"},
    frozenset({"num_experts"}),
    names.QWEN3_MOE,
    qk_norm="head",
    experts="norm_topk_prob",
)
GPT_OSS = Family(
    "every other layer",
    {
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "attention_bias": True,
        "sliding_window": 128,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "rope_theta": 150_000.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 32.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    },
    frozenset({"sliding_window", "attention_bias", "num_local_experts", "num_experts", "quantization_config"}),
    {"num_experts": "num_local_experts", "moe_intermediate_size": "intermediate_size"},
    frozenset({"num_experts"}),
    names.GPT_OSS,
    norm_rounds_last=True,
    experts="always",
    sinks=True,
)

FAMILIES = {
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3_TEXT,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "gpt_oss": GPT_OSS,
    "granite": GRANITE,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mixtral": MIXTRAL,
    "olmo2": OLMO2,
    "olmo3": OLMO3,
    "olmoe": OLMOE,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "smollm3": SMOLLM3,
}

# The sizes of transformers for missing keys. The text part of gemma-3-4b-it's file has three of them.
SIZE_KEYS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    "max_position_embeddings",
)
SIZES = {
    "gemma": (256_000, 3072, 24_576, 28, 16, 8192),
    "gemma2": (256_000, 2304, 9216, 26, 8, 8192),
    "gemma3": (262_208, 2304, 9216, 26, 8, 131_072),
    "gemma3_text": (262_208, 2304, 9216, 26, 8, 131_072),
    "gpt2": (50_257, 768, None, 12, 12, 1024),
    "gpt_neox": (50_432, 6144, 24_576, 44, 64, 2048),
    "gpt_oss": (201_088, 2880, 2880, 36, 64, 131_072),
    "granite": (32_000, 4096, 11_008, 32, 32, 2048),
    "llama": (32_000, 4096, 11_008, 32, 32, 2048),
    "mistral": (32_000, 4096, 14_336, 32, 32, 131_072),
    "mixtral": (32_000, 4096, 14_336, 32, 32, 131_072),
    "olmo2": (50_304, 4096, 11_008, 32, 32, 2048),
    "olmo3": (50_304, 4096, 11_008, 32, 32, 2048),
    "olmoe": (50_304, 2048, 2048, 16, 16, 4096),
    "phi3": (32_064, 3072, 8192, 32, 32, 4096),
    "qwen2": (151_936, 4096, 22_016, 32, 32, 32_768),
    "qwen3": (151_936, 4096, 22_016, 32, 32, 32_768),
    "qwen3_moe": (151_936, 2048, 6144, 24, 32, 32_768),
    "smollm3": (128_256, 2048, 11_008, 36, 16, 32_768),
}


def sizes(name: str) -> dict[str, int | None]:
    """The sizes of a family, by its own keys."""
    renamed = FAMILIES[name].renamed
    return {renamed.get(key, key): size for key, size in zip(SIZE_KEYS, SIZES[name], strict=True)}


# Keys that change the results, with the values that do not. Any other value of a key that a family does not read is
# refused, because the decoder would ignore it.
NEUTRAL = {
    "add_cross_attention": (None, False),
    "attention_bias": (None, False),
    "attention_chunk_size": (None,),
    "attention_multiplier": (None, 1),
    "attn_logit_softcapping": (None,),
    "clip_qkv": (None,),
    "decoder_sparse_step": (None, 1),
    "embedding_multiplier": (None, 1),
    "is_causal": (None, True),
    "mlp_bias": (None, False),
    "mlp_only_layers": (None, []),
    "moe_intermediate_size": (None,),
    "n_routed_experts": (None, 0),
    "no_rope_layers": (None,),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "partial_rotary_factor": (None, 1),
    "per_layer_config": (None, {}),
    "quantization": (None,),
    "quantization_config": (None,),
    "residual_multiplier": (None, 1),
    "scale_attn_by_inverse_layer_idx": (None, False),
    "scale_attn_weights": (None, True),
    "sliding_window": (None,),
    "use_bidirectional_attention": (None, False),
    "use_parallel_residual": (None, False),
    "use_qk_norm": (None, False),
}
