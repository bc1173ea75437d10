"""The Qwen2 family decoder: the residual stream after chosen blocks.

Never computes logits, and no block after the deepest one asked for. Numerics follow Hugging Face's Qwen2: weights,
activations and the residual stream in one dtype; norms, rotary embeddings and softmax in fp32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .config import Qwen2Config

_QUERY_BLOCK = 256
_MAX_QUERY_BLOCKS = 32  # each is compiled separately


SITES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")


def run_blocks(
    params: dict,
    token_ids: jax.Array,
    config: Qwen2Config,
    layers: tuple[int, ...],
    emit: Callable[[dict[str, jax.Array]], Any],
) -> Any:
    """Runs blocks 0 to max(layers); returns what `emit` makes of the sites of each block in `layers` (ascending), stacked
    along a new first axis of len(layers).

    token_ids: int32 [B, T], padded on the right: attention is causal, so padding changes no real token.
    params: {"embed": [V, D], "blocks": {name: [L, ...]}} with at least max(layers) + 1 blocks.
    emit: gets {site: [B, T, D]} for every one of SITES, inside the scan; what it does not use is never computed.
    """
    x = params["embed"][token_ids]  # [B, T, D]
    cos, sin = _rope_tables(token_ids.shape[1], config)
    windows = jnp.asarray(config.windows, dtype=jnp.int32)
    kept = []
    for first, last, keep in _runs(layers):
        blocks = jax.tree.map(lambda w: w[first:last], params["blocks"])

        def step(x, block):
            sites = _block(x, block[0], block[1], cos, sin, config)
            return sites["resid_post"], (emit(sites) if keep else None)

        x, outputs = jax.lax.scan(step, x, (blocks, windows[first:last]))
        if keep:
            kept.append(outputs)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)


@partial(jax.jit, static_argnames=("config", "layers"))
def resid_post(params: dict, token_ids: jax.Array, config: Qwen2Config, layers: tuple[int, ...]) -> jax.Array:
    """The output of each block in `layers` (ascending), before the final norm: [len(layers), B, T, d_model]."""
    return run_blocks(params, token_ids, config, layers, lambda sites: sites["resid_post"])


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
    attn_out = _linear(_attention(q, k, v, window).reshape(b, t, -1), p["wo"])
    mid = x + attn_out
    h = _rms_norm(mid, p["norm2"], config.norm_eps)
    mlp_out = _linear(jax.nn.silu(_linear(h, p["gate"])) * _linear(h, p["up"]), p["down"])
    return {"resid_pre": x, "resid_mid": mid, "resid_post": mid + mlp_out, "attn_out": attn_out, "mlp_out": mlp_out}


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
        scores = jnp.einsum(
            "bkgqh,bksh->bkgqs", q[:, :, :, begin:end], k[:, :, :end], preferred_element_type=jnp.float32
        )
        distance = jnp.arange(begin, end)[:, None] - jnp.arange(end)[None, :]
        scores = jnp.where((distance >= 0) & (distance < window), scores * q.shape[-1] ** -0.5, -jnp.inf)
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
        rows = jnp.einsum(
            "bkgqs,bksh->bkgqh", weights.astype(v.dtype), v[:, :, :end], preferred_element_type=jnp.float32
        )
        out.append((rows / weights.sum(axis=-1, keepdims=True)).astype(v.dtype))
    return jnp.moveaxis(jnp.concatenate(out, axis=3), 3, 1)
