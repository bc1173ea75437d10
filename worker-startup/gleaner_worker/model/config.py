"""What a Qwen2 family model is, from its config.json: sizes, windows, and the names and shapes of its weights."""

from dataclasses import dataclass

from ..failures import Failure

_NEVER = 2**30  # a window longer than any sequence: full attention


@dataclass(frozen=True)
class Qwen2Config:
    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    windows: tuple[int, ...]  # per layer: how many positions back a token sees, itself included


def parse_config(raw: dict, where: str) -> Qwen2Config:
    """Reads Hugging Face's config.json; raises Failure("model") naming everything that this decoder does not do."""
    problems = []
    needed = [
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
    ]
    problems += [f"{key} is missing" for key in needed if not isinstance(raw.get(key), int)]
    # transformers 5 moved rope_theta and rope_scaling into rope_parameters.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", raw.get("rope_theta", 10_000.0))
    expected = {
        "model_type": (raw.get("model_type"), "qwen2"),
        "hidden_act": (raw.get("hidden_act", "silu"), "silu"),
        "rope type": (rope_type, "default"),
    }
    problems += [
        f"{key} is {found!r}, only {known!r} is supported" for key, (found, known) in expected.items() if found != known
    ]
    if problems:
        raise Failure("model", f"Failed to use {where}: {'; '.join(problems)}")
    heads = raw["num_attention_heads"]
    kv_heads = raw.get("num_key_value_heads") or heads
    head_dim = raw.get("head_dim") or raw["hidden_size"] // heads
    if heads % kv_heads or head_dim % 2:
        raise Failure(
            "model",
            f"Failed to use {where}: {heads} heads, {kv_heads} key/value heads, head size {head_dim} do not fit",
        )
    return Qwen2Config(
        num_layers=raw["num_hidden_layers"],
        d_model=raw["hidden_size"],
        d_ff=raw["intermediate_size"],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=raw["vocab_size"],
        max_positions=raw["max_position_embeddings"],
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=float(theta),
        windows=_windows(raw),
    )


def _windows(raw: dict) -> tuple[int, ...]:
    layers = raw["num_hidden_layers"]
    window = raw.get("sliding_window")
    if not raw.get("use_sliding_window") or not window:
        return (_NEVER,) * layers
    first = raw.get("max_window_layers", layers)
    types = raw.get("layer_types") or [
        "sliding_attention" if layer >= first else "full_attention" for layer in range(layers)
    ]
    return tuple(window if kind == "sliding_attention" else _NEVER for kind in types)


# Hugging Face name below `model.layers.N.` -> (parameter, shape of it). Linear weights stay [out, in].
def layer_table(config: Qwen2Config) -> dict[str, tuple[str, tuple[int, ...]]]:
    d, f = config.d_model, config.d_ff
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "input_layernorm.weight": ("norm1", (d,)),
        "self_attn.q_proj.weight": ("wq", (q, d)),
        "self_attn.q_proj.bias": ("bq", (q,)),
        "self_attn.k_proj.weight": ("wk", (kv, d)),
        "self_attn.k_proj.bias": ("bk", (kv,)),
        "self_attn.v_proj.weight": ("wv", (kv, d)),
        "self_attn.v_proj.bias": ("bv", (kv,)),
        "self_attn.o_proj.weight": ("wo", (d, q)),
        "post_attention_layernorm.weight": ("norm2", (d,)),
        "mlp.gate_proj.weight": ("gate", (f, d)),
        "mlp.up_proj.weight": ("up", (f, d)),
        "mlp.down_proj.weight": ("down", (d, f)),
    }


EMBEDDING = "model.embed_tokens.weight"
# In the files, but no part of the residual stream up to a block's output.
IGNORED = ("model.norm.weight", "lm_head.weight")
