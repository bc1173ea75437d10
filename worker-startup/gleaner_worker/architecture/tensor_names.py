"""The names of the families' tensors in Hugging Face's files, as data."""

from dataclasses import dataclass, field

_LLAMA = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


@dataclass(frozen=True)
class TensorNames:
    """The names of one family."""

    # Of a block's modules. A module "q k v" or "gate up" holds the rows of several, one after another; {} stands for
    # the number of an expert.
    modules: dict[str, str] = field(default_factory=lambda: _LLAMA)
    # Prefixes of all names below: of a causal language model, a bare text model, and the text part of a model of
    # several modalities, in older and newer files.
    prefixes: tuple[str, ...] = ("model.", "", "language_model.model.", "model.language_model.")
    embedding: str = "embed_tokens.weight"
    positions: str = ""
    layers: str = "layers."
    final_norm: str = "norm"
    # Tensors without weights of their own.
    buffers: tuple[str, ...] = ("self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq")
    head: str = "lm_head.weight"
    transposed: bool = False  # linear weights are [in, out]
    by_head: bool = False  # the rows of "q k v" are those of q, k and v of the first head, then of the second


LLAMA = TensorNames()
# The name is the norm after attention in one kind of block, and the norm before the MLP in the other.
SANDWICH = TensorNames(
    _LLAMA
    | {
        "post1": "post_attention_layernorm",
        "norm2": "pre_feedforward_layernorm",
        "post2": "post_feedforward_layernorm",
    }
)
PHI3 = TensorNames(_LLAMA | {"q k v": "self_attn.qkv_proj", "gate up": "mlp.gate_up_proj"})
GPT2 = TensorNames(
    {
        "norm1": "ln_1",
        "norm2": "ln_2",
        "q k v": "attn.c_attn",
        "o": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
    ("transformer.", ""),
    "wte.weight",
    "wpe.weight",
    "h.",
    "ln_f",
    ("attn.bias", "attn.masked_bias"),
    transposed=True,
)
GPT_NEOX = TensorNames(
    {
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        "q k v": "attention.query_key_value",
        "o": "attention.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    ("gpt_neox.", ""),
    "embed_in.weight",
    final_norm="final_layer_norm",
    head="embed_out.weight",
    buffers=("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"),
    by_head=True,
)
QWEN3_MOE = TensorNames(
    _LLAMA
    | {
        "router": "mlp.gate",
        "experts_gate": "mlp.experts.{}.gate_proj",
        "experts_up": "mlp.experts.{}.up_proj",
        "experts_down": "mlp.experts.{}.down_proj",
    }
)
MIXTRAL = TensorNames(
    _LLAMA
    | {
        "router": "block_sparse_moe.gate",
        "experts_gate": "block_sparse_moe.experts.{}.w1",
        "experts_up": "block_sparse_moe.experts.{}.w3",
        "experts_down": "block_sparse_moe.experts.{}.w2",
    }
)
GPT_OSS = TensorNames(_LLAMA | {"sinks": "self_attn.sinks", "router": "mlp.router", "experts": "mlp.experts"})
# The unembedding: its name here, and its other names in files.
HEADS = ("lm_head.weight", "language_model.lm_head.weight", "embed_out.weight")
# Heads of reward models.
SCORES = ("score.weight", "score.bias")
# Towers of other modalities; text does not pass through them.
OTHER_TOWERS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
