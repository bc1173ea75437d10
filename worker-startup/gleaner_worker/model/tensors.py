"""The names and shapes of a model's weights in Hugging Face's files, and the parameters that they become."""

from .config import DecoderConfig

# Prefixes of the names below: of a causal language model, a bare text model, and the text part of a model of several
# modalities, in older and newer files.
PREFIXES = ("model.", "", "language_model.model.", "model.language_model.")
EMBEDDING = "embed_tokens.weight"
# Tensors that no part of the residual stream up to a block's output uses.
FINAL_NORM = "norm.weight"
HEADS = ("lm_head.weight", "language_model.lm_head.weight")
OLD_BUFFERS = ("self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq")
# Towers of other modalities; text does not pass through them.
OTHER_TOWERS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


def layer_table(config: DecoderConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name below `layers.N.` -> (parameter, its shape). Linear weights stay [out, in]."""
    d, f, h = config.d_model, config.d_ff, config.head_dim
    q, kv = config.num_heads * h, config.num_kv_heads * h
    table: dict[str, tuple[str, tuple[int, ...]]] = {"input_layernorm.weight": ("norm1", (d,))}
    for name, out in (("q", q), ("k", kv), ("v", kv)):
        table[f"self_attn.{name}_proj.weight"] = (f"w{name}", (out, d))
        if config.qkv_bias:
            table[f"self_attn.{name}_proj.bias"] = (f"b{name}", (out,))
    table["self_attn.o_proj.weight"] = ("wo", (d, q))
    if config.o_bias:
        table["self_attn.o_proj.bias"] = ("bo", (d,))
    if config.qk_norm:
        table |= {f"self_attn.{name}_norm.weight": (f"{name}_norm", (h,)) for name in ("q", "k")}
    # The name is the norm after attention in one kind of block, and the norm before the MLP in the other.
    if config.sandwich_norms:
        table["post_attention_layernorm.weight"] = ("post1", (d,))
        table["pre_feedforward_layernorm.weight"] = ("norm2", (d,))
        table["post_feedforward_layernorm.weight"] = ("post2", (d,))
    else:
        table["post_attention_layernorm.weight"] = ("norm2", (d,))
    for name, out, into in (("gate", f, d), ("up", f, d), ("down", d, f)):
        table[f"mlp.{name}_proj.weight"] = (name, (out, into))
        if config.mlp_bias:
            table[f"mlp.{name}_proj.bias"] = (f"b_{name}", (out,))
    return table
