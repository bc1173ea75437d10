"""The decoder of every family: the residual stream, and the sums that each block adds to it.

Computes no logits, and no block after the deepest requested one. Numerics follow transformers: weights, activations
and the residual stream in one dtype; norms, rotary embeddings and softmax in fp32. Products are summed in fp32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .attention import attend
from .config import DecoderConfig
from .rotate import rope_tables, rotate

# resid_pre: the stream that enters a block (for block 0, the scaled embeddings). attn_out and mlp_out: the sums that
# the block's two halves add, after their own norms in families that have them. resid_mid and resid_post: the stream
# after each half.
SITES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
_MAX_RUNS = 4  # of kept layers and of other layers; each run is compiled by itself
_CPU_ROWS = 512  # of an MLP at a time
_MAX_PARTS = 16
_ACTIVATIONS = {"silu": jax.nn.silu, "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True)}


def run_blocks(
    params: dict,
    token_ids: jax.Array,
    config: DecoderConfig,
    layers: tuple[int, ...],
    emit: Callable[[dict[str, jax.Array]], Any],
) -> Any:
    """Runs blocks 0 to max(layers); returns the results of `emit` for the sites of each block in `layers` (ascending),
    stacked along a new first axis of len(layers).

    token_ids: int32 [B, T], padded on the right: attention is causal, so padding changes no real token.
    params: {"embed": [V, D], "blocks": {name: [L, ...]}} with at least max(layers) + 1 blocks.
    emit: receives {site: [B, T, D]} for each of SITES, inside the scan; a site that it does not use is never computed.
    """
    x = _embed(params["embed"], token_ids, config)
    block = _block_runner(params["blocks"], token_ids.shape[1], config)
    shapes, used = _what_emit_does(emit, x)
    outputs = jax.tree.map(lambda like: jnp.zeros((len(layers), *like.shape), like.dtype), shapes)
    # The place of each layer's outputs. The next kept layer overwrites the outputs of layers that are not kept.
    slots = jnp.asarray([sum(kept < layer for kept in layers) for layer in range(layers[-1] + 1)])

    def keep(outputs, sites, layer):
        return jax.tree.map(lambda out, new: out.at[slots[layer]].set(new), outputs, emit(sites))

    def keeping(carry, layer):
        x, outputs = carry
        sites = block(x, layer)
        return (sites["resid_post"], keep(outputs, sites, layer)), None

    def passing(carry, layer):
        x, outputs = carry
        return (block(x, layer)["resid_post"], outputs), None

    # Without the stream after it, the deepest block stays outside of the scan: XLA then drops the rest of that block.
    whole = bool(used & {"resid_post", "mlp_out"})
    for first, end, is_kept in _runs(layers, layers[-1] + whole):
        (x, outputs), _ = jax.lax.scan(keeping if is_kept else passing, (x, outputs), jnp.arange(first, end))
    return outputs if whole else keep(outputs, block(x, layers[-1]), layers[-1])


@partial(jax.jit, static_argnames=("config", "layers"))
def resid_post(params: dict, token_ids: jax.Array, config: DecoderConfig, layers: tuple[int, ...]) -> jax.Array:
    """The output of each block in `layers` (ascending), before the final norm: [len(layers), B, T, d_model]."""
    return run_blocks(params, token_ids, config, layers, lambda sites: sites["resid_post"])


def _what_emit_does(emit: Callable, x: jax.Array) -> tuple[Any, set[str]]:
    """The shapes of the results of `emit`, and the sites that it uses."""
    closed, shapes = jax.make_jaxpr(emit, return_shape=True)(dict.fromkeys(SITES, x))
    read = {id(v) for equation in closed.jaxpr.eqns for v in equation.invars} | {id(v) for v in closed.jaxpr.outvars}
    # A dictionary's values become arguments in the order of its sorted keys.
    return shapes, {site for site, v in zip(sorted(SITES), closed.jaxpr.invars, strict=True) if id(v) in read}


def _runs(layers: tuple[int, ...], end: int) -> list[tuple[int, int, bool]]:
    """Cuts 0..end into (first, end, kept) runs, one scan each, so that layers that are not kept emit nothing.

    Each run is compiled. For more than a few runs it is faster to emit for all layers and to overwrite.
    """
    runs: list[tuple[int, int, bool]] = []
    for layer in range(end):
        is_kept = layer in layers
        if runs and runs[-1][2] == is_kept:
            runs[-1] = (runs[-1][0], layer + 1, is_kept)
        else:
            runs.append((layer, layer + 1, is_kept))
    return runs if len(runs) <= _MAX_RUNS else [(0, end, True)]


def _embed(table: jax.Array, token_ids: jax.Array, config: DecoderConfig) -> jax.Array:
    x = jnp.asarray(table)[token_ids]  # [B, T, D]
    return x if config.embed_scale is None else x * jnp.asarray(config.embed_scale, x.dtype)


def _block_runner(blocks: dict, length: int, config: DecoderConfig) -> Callable:
    """A function (x [B, T, D], layer) -> the sites of that block, for a layer number that is known only in the scan."""
    cos, sin = rope_tables(config.ropes, config.head_dim, length)
    layer_ropes = jnp.asarray(config.layer_ropes)
    windows = [min(window, length) for window in config.windows]  # longer windows are full attention
    different = sorted(set(windows))
    kinds = jnp.asarray([different.index(window) for window in windows])
    attentions = [
        partial(attend, window=window, scale=config.attention_scale, softcap=config.attention_softcap)
        for window in different
    ]

    def run(x, layer):
        # Indexed here instead of sliced before the scan, because a slice copies the weights of a whole run of layers.
        p = {name: _of_layer(stack, layer) for name, stack in blocks.items()}
        rope = layer_ropes[layer]
        attention = attentions[0] if len(attentions) == 1 else partial(jax.lax.switch, kinds[layer], attentions)
        return _block(x, p, cos[rope], sin[rope], attention, config)

    return run


def _of_layer(stack, layer):
    """One layer's part of a parameter. bf16 may come as its bits, uint16: to index a stack of bf16, XLA's CPU widens
    the whole stack to fp32 in every layer."""
    part = jax.lax.dynamic_index_in_dim(stack, layer, keepdims=False)
    return jax.lax.bitcast_convert_type(part, jnp.bfloat16) if part.dtype == jnp.uint16 else part


def _block(x, p, cos, sin, attention, config: DecoderConfig):
    """Values stay in fp32 between two products, and are rounded to the weights' dtype once."""
    b, t, _ = x.shape
    norm = partial(_rms_norm, config=config)
    h = norm(x, p["norm1"])
    q = _linear(h, p["wq"], p.get("bq")).reshape(b, t, config.num_kv_heads, -1, config.head_dim)  # [B, T, K, G, H]
    k = _linear(h, p["wk"], p.get("bk")).reshape(b, t, config.num_kv_heads, config.head_dim)
    v = _linear(h, p["wv"], p.get("bv")).reshape(b, t, config.num_kv_heads, config.head_dim)
    if config.qk_norm:
        q, k = norm(q, p["q_norm"]), norm(k, p["k_norm"])
    q = rotate(q, cos[:, None, None], sin[:, None, None])
    k = rotate(k, cos[:, None], sin[:, None])
    rows = attention(q.astype(x.dtype), k.astype(x.dtype), v.astype(x.dtype)).reshape(b, t, -1)
    attn_out = _linear(rows, p["wo"], p.get("bo"))
    if config.sandwich_norms:
        attn_out = norm(attn_out, p["post1"])
    attn_out = attn_out.astype(x.dtype)
    mid = x + attn_out
    mlp_out = _by_rows(partial(_mlp, p=p, activation=_ACTIVATIONS[config.activation]), norm(mid, p["norm2"]))
    if config.sandwich_norms:
        mlp_out = norm(mlp_out, p["post2"])
    mlp_out = mlp_out.astype(x.dtype)
    return {"resid_pre": x, "resid_mid": mid, "resid_post": mid + mlp_out, "attn_out": attn_out, "mlp_out": mlp_out}


def _mlp(x, p, activation):
    gated = activation(_linear(x, p["gate"], p.get("b_gate"))) * _linear(x, p["up"], p.get("b_up"))
    return _linear(gated.astype(x.dtype), p["down"], p.get("b_down"))


def _by_rows(function, x):
    """Applies a row-wise function to x [B, T, D]; on a CPU in parts, so that intermediate values fit its caches."""
    b, t, d = x.shape
    size = max(_CPU_ROWS, -(-b * t // _MAX_PARTS))
    if jax.default_backend() != "cpu" or b * t <= size:
        return function(x)
    rows = x.reshape(1, b * t, d)
    parts = [function(rows[:, begin : begin + size]) for begin in range(0, b * t, size)]
    return jnp.concatenate(parts, axis=1).reshape(b, t, -1)


def _linear(x, w, bias):
    """fp32. w is [out, in], as in the files. On a CPU a product of bf16 is fast only without rounding to bf16."""
    y = jnp.einsum("btd,od->bto", x, w, preferred_element_type=jnp.float32)
    return y if bias is None else y + bias


def _rms_norm(x, weight, config: DecoderConfig):
    """In x's dtype. Most families round before they apply the weights, Gemma after."""
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + config.norm_eps)
    if config.norm_rounds_last:
        return (x32 * (weight.astype(jnp.float32) + config.norm_offset)).astype(x.dtype)
    return x32.astype(x.dtype) * (weight + jnp.asarray(config.norm_offset, weight.dtype)).astype(x.dtype)
