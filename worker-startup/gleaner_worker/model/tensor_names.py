"""The names of the families' tensors in Hugging Face's files, as data."""

from dataclasses import dataclass, field, replace

_LLAMA_MODULES = {
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

    # Of a block's modules. A module "qkv" or "gate up" holds the rows of several, one after another.
    modules: dict[str, str] = field(default_factory=lambda: _LLAMA_MODULES)
    # Prefixes of all names below: of a causal language model, a bare text model, and the text part of a model of
    # several modalities, in older and newer files.
    prefixes: tuple[str, ...] = ("model.", "", "language_model.model.", "model.language_model.")
    embedding: str = "embed_tokens.weight"
    layers: str = "layers."
    # Tensors that no part of the residual stream up to a block's output uses.
    final_norm: str = "norm"
    buffers: tuple[str, ...] = ("self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq")


LLAMA_NAMES = TensorNames()
# The name is the norm after attention in one kind of block, and the norm before the MLP in the other.
SANDWICH_NAMES = replace(
    LLAMA_NAMES,
    modules=_LLAMA_MODULES
    | {
        "post1": "post_attention_layernorm",
        "norm2": "pre_feedforward_layernorm",
        "post2": "post_feedforward_layernorm",
    },
)
PHI3_NAMES = replace(LLAMA_NAMES, modules=_LLAMA_MODULES | {"qkv": "self_attn.qkv_proj", "gate up": "mlp.gate_up_proj"})
# Heads of language models and of reward models.
HEADS = ("lm_head.weight", "language_model.lm_head.weight", "score.weight", "score.bias")
# Towers of other modalities; text does not pass through them.
OTHER_TOWERS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
