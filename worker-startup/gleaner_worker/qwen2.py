"""The Qwen2 family decoder: configuration, and the residual stream after chosen blocks.

Never computes logits, and no block after the deepest one asked for. Numerics follow Hugging Face's Qwen2: weights,
activations and the residual stream in one dtype; norms, rotary embeddings and softmax in fp32.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from .failures import Failure

_QUERY_BLOCK = 256
_MAX_QUERY_BLOCKS = 32  # each is compiled separately
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
    needed = ["num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "max_position_embeddings"]
    problems += [f"{key} is missing" for key in needed if not isinstance(raw.get(key), int)]
    # transformers 5 moved rope_theta and rope_scaling into rope_parameters.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", raw.get("rope_theta", 10_000.0))
    expected = {"model_type": (raw.get("model_type"), "qwen2"), "hidden_act": (raw.get("hidden_act", "silu"), "silu"), "rope type": (rope_type, "default")}
    problems += [f"{key} is {found!r}, only {known!r} is supported" for key, (found, known) in expected.items() if found != known]
    if problems:
        raise Failure("model", f"Failed to use {where}: {'; '.join(problems)}")
    heads = raw["num_attention_heads"]
    kv_heads = raw.get("num_key_value_heads") or heads
    head_dim = raw.get("head_dim") or raw["hidden_size"] // heads
    if heads % kv_heads or head_dim % 2:
        raise Failure("model", f"Failed to use {where}: {heads} heads, {kv_heads} key/value heads, head size {head_dim} do not fit")
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
    types = raw.get("layer_types") or ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]
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


@partial(jax.jit, static_argnames=("config", "layers"))
def resid_post(params: dict, token_ids: jax.Array, config: Qwen2Config, layers: tuple[int, ...]) -> jax.Array:
    """The output of each block in `layers` (ascending), before the final norm: [len(layers), B, T, d_model].

    token_ids: int32 [B, T], padded on the right: attention is causal, so padding changes no real token.
    params: {"embed": [V, D], "blocks": {name: [L, ...]}} with at least max(layers) + 1 blocks.
    """
    x = params["embed"][token_ids]  # [B, T, D]
    cos, sin = _rope_tables(token_ids.shape[1], config)
    windows = jnp.asarray(config.windows, dtype=jnp.int32)
    kept = []
    for first, last, keep in _runs(layers):
        blocks = jax.tree.map(lambda w: w[first:last], params["blocks"])

        def step(x, block):
            x = _block(x, block[0], block[1], cos, sin, config)
            return x, (x if keep else None)

        x, outputs = jax.lax.scan(step, x, (blocks, windows[first:last]))
        if keep:
            kept.append(outputs)
    return jnp.concatenate(kept)


def _runs(layers: tuple[int, ...]) -> list[tuple[int, int, bool]]:
    """Cuts 0..max(layers) into (first, end, kept) runs: one scan each, so layers not asked for take no memory."""
    runs: list[tuple[int, int, bool]] = []
    for layer in range(layers[-1] + 1):
        keep = layer in layers
        if runs and runs[-1][2] == keep:
            runs[-1] = (runs[-1][0], layer + 1, keep)
        else:
            runs.append((layer, layer + 1, keep))
    return runs


def _block(x, p, window, cos, sin, config: Qwen2Config):
    b, t, _ = x.shape
    h = _rms_norm(x, p["norm1"], config.norm_eps)
    q = (_linear(h, p["wq"]) + p["bq"]).reshape(b, t, config.num_kv_heads, -1, config.head_dim)  # [B, T, K, G, H]
    k = (_linear(h, p["wk"]) + p["bk"]).reshape(b, t, config.num_kv_heads, config.head_dim)
    v = (_linear(h, p["wv"]) + p["bv"]).reshape(b, t, config.num_kv_heads, config.head_dim)
    q = _rotate(q, cos[:, None, None], sin[:, None, None])
    k = _rotate(k, cos[:, None], sin[:, None])
    x = x + _linear(_attention(q, k, v, window).reshape(b, t, -1), p["wo"])
    h = _rms_norm(x, p["norm2"], config.norm_eps)
    return x + _linear(jax.nn.silu(_linear(h, p["gate"])) * _linear(h, p["up"]), p["down"])


def _linear(x, w):
    return jnp.einsum("btd,od->bto", x, w)


def _rms_norm(x, weight, eps):
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    return weight * x32.astype(x.dtype)


def _rope_tables(length: int, config: Qwen2Config):
    """fp32 [T, head_dim / 2]: bf16 would round position 257 to 256."""
    frequency = 1.0 / config.rope_theta ** (jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim)
    angle = jnp.arange(length, dtype=jnp.float32)[:, None] * frequency
    return jnp.cos(angle), jnp.sin(angle)


def _rotate(x, cos, sin):
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def _attention(q, k, v, window):
    """Causal, grouped-query, at most `window` positions back. q [B, T, K, G, H]; k, v [B, T, K, H] -> [B, T, K, G, H].

    Queries go in blocks that see only the keys up to their own end: half the work of T x T, and scores of
    [B, K, G, block, T] fp32 at most.
    """
    length = q.shape[1]
    block = max(_QUERY_BLOCK, length // _MAX_QUERY_BLOCKS)
    q = jnp.moveaxis(q, 1, 3)  # [B, K, G, T, H]
    k, v = jnp.moveaxis(k, 1, 2), jnp.moveaxis(v, 1, 2)  # [B, K, T, H]
    out = []
    for begin in range(0, length, block):
        end = min(begin + block, length)
        scores = jnp.einsum("bkgqh,bksh->bkgqs", q[:, :, :, begin:end], k[:, :, :end], preferred_element_type=jnp.float32)
        distance = jnp.arange(begin, end)[:, None] - jnp.arange(end)[None, :]
        scores = jnp.where((distance >= 0) & (distance < window), scores * q.shape[-1] ** -0.5, -jnp.inf)
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
        rows = jnp.einsum("bkgqs,bksh->bkgqh", weights.astype(v.dtype), v[:, :, :end], preferred_element_type=jnp.float32)
        out.append((rows / weights.sum(axis=-1, keepdims=True)).astype(v.dtype))
    return jnp.moveaxis(jnp.concatenate(out, axis=3), 3, 1)
