"""Causal, grouped-query attention over a window, among the tokens of one segment of a row.

Two forms of one function: the splash kernel of JAX for bf16 on a TPU, and blocks otherwise. Both sum products and take
the softmax in fp32 for inputs of any type, and neither holds T x T scores in memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .tuning import Tuning

_KERNEL_QUERIES, _KERNEL_KEYS = 512, 1024  # of one block of the kernel


class Past(NamedTuple):
    """The tokens before the token of each row."""

    k: Any  # [L, R, K, S, H], rotated
    v: Any  # [L, R, K, S, H]
    positions: Any  # int32 [R, S]; -1 for a place without a token


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segments: jax.Array,
    sinks: jax.Array | None = None,
    *,
    window: int,
    softcap: float | None,
    tuning: Tuning,
) -> jax.Array:
    """q [R, N, T, H], scaled; k, v [R, K, T, H]; segments int32 [R, T] -> [R, N, T, H].

    A token sees itself and the tokens of its own segment among the `window` - 1 tokens before it. Segment 0 is the
    padding behind the samples, whose results are arbitrary and finite.
    softcap: scores become tanh(scores / softcap) * softcap, as in Gemma 2.
    sinks: a score [N] of each head, which takes a part of the softmax and adds nothing.
    """
    form: Callable[..., jax.Array] = _splash if tuning.kernels else _blocks
    return form(q, k, v, segments, sinks, window, softcap, tuning)


def _splash(q, k, v, segments, sinks, window: int, softcap: float | None, tuning: Tuning) -> Any:
    # This import takes a quarter of a second of CPU time, and blocks need none of it.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, length = q.shape[1:3]
    # The window counts the token itself; the mask counts the tokens to its left.
    mask = masks.MultiHeadMask([masks.LocalMask((length, length), (window - 1, 0), offset=0)] * heads)
    keys = min(_KERNEL_KEYS, length)
    # XLA computes projections and rotations faster in most programs where tokens are the minor axis.
    layout = splash.QKVLayout.SEQ_MINOR if tuning.tokens_minor else splash.QKVLayout.HEAD_DIM_MINOR
    sizes = splash.BlockSizes(
        block_q=min(_KERNEL_QUERIES, length),
        block_kv=keys,
        block_kv_compute=min(_KERNEL_QUERIES, keys),
        q_layout=layout,
        k_layout=layout,
        v_layout=layout,
    )
    kernel = splash.make_splash_mha_single_device(
        mask, block_sizes=sizes, attn_logits_soft_cap=softcap, interpret=tuning.interpret
    )

    def row(q, k, v, ids):
        return kernel(q, k, v, segment_ids=splash.SegmentIds(ids, ids), sinks=sinks)

    return jax.vmap(row)(q, k, v, segments)


def _blocks(q, k, v, segments, sinks, window: int, softcap: float | None, tuning: Tuning):
    """The softmax is a running sum over blocks of keys, from the first block that a query of the block can see.

    Where a query sees no key of a block, the block changes no bit of its sum. So other rows change no bit of a row.
    """
    rows, heads, tokens, h = q.shape
    size = min(tuning.query_block, tokens)
    blocks = -(-tokens // size)
    length = blocks * size
    if length > tokens:  # padding, of segment 0
        q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, length - tokens), (0, 0))) for x in (q, k, v))
        segments = jnp.pad(segments, ((0, 0), (0, length - tokens)))
    q = q.reshape(rows, k.shape[1], -1, length, h)  # [R, K, G, T, H]
    first_blocks = first_key_blocks(segments, window, size)

    def at(x: jax.Array, block: jax.Array, axis: int) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(x, block * size, size, axis)

    def rows_of(block: jax.Array) -> jax.Array:
        queries, segment = at(q, block, 3), at(segments, block, 1)

        def add(state: tuple) -> tuple:
            other, top, total, sums = state
            scores = jnp.einsum("rkgqh,rksh->rkgqs", queries, at(k, other, 2), preferred_element_type=jnp.float32)
            if softcap is not None:
                scores = jnp.tanh(scores / softcap) * softcap
            distance = (block - other) * size + jnp.arange(size)[:, None] - jnp.arange(size)[None, :]
            same = segment[:, :, None] == at(segments, other, 1)[:, None, :]
            seen = (distance >= 0) & (distance < window) & same
            scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
            new_top = jnp.maximum(top, scores.max(axis=-1, keepdims=True))
            weights, scale = jnp.exp(scores - new_top).astype(v.dtype), jnp.exp(top - new_top)
            new = jnp.einsum("rkgqs,rksh->rkgqh", weights, at(v, other, 2), preferred_element_type=jnp.float32)
            total = total * scale + weights.astype(jnp.float32).sum(axis=-1, keepdims=True)
            return other + 1, new_top, total, sums * scale + new

        top = jnp.full((*queries.shape[:-1], 1), jnp.finfo(jnp.float32).min)
        total = jnp.zeros_like(top)
        if sinks is not None:
            sink = sinks.astype(jnp.float32).reshape(k.shape[1], -1)[:, :, None, None]
            top, total = jnp.broadcast_to(sink, top.shape), jnp.ones_like(top)
        state = first_blocks[block], top, total, jnp.zeros(queries.shape, jnp.float32)
        # The second condition always holds. It tells the cost model the most trips.
        _, _, total, sums = jax.lax.while_loop(lambda s: (s[0] <= block) & (s[0] < blocks), add, state)
        return (sums / total).astype(v.dtype)

    out = jax.lax.map(rows_of, jnp.arange(blocks))  # [blocks, R, K, G, size, H]
    return jnp.moveaxis(out, 0, 3).reshape(rows, heads, length, h)[:, :, :tokens]


def attend_past(q, k, v, past_k, past_v, seen, sinks, softcap: float | None) -> jax.Array:
    """The attention of one token a row, to itself and to the tokens before it: q [R, N, 1, H], scaled; k, v
    [R, K, 1, H]; past_k, past_v [R, K, S, H]; seen bool [R, S] -> [R, N, 1, H]."""
    rows, kv_heads = k.shape[:2]
    q = q.reshape(rows, kv_heads, -1, q.shape[-1])  # [R, K, G, H]

    def scores_of(keys) -> jax.Array:
        scores = jnp.einsum("rkgh,rksh->rkgs", q, keys, preferred_element_type=jnp.float32)
        return scores if softcap is None else jnp.tanh(scores / softcap) * softcap

    before = jnp.where(seen[:, None, None], scores_of(past_k), -jnp.inf)
    sink = () if sinks is None else (sinks.astype(jnp.float32).reshape(kv_heads, -1, 1),)
    parts = [scores_of(k), before, *(jnp.broadcast_to(each, (*q.shape[:3], 1)) for each in sink)]
    weights = jax.nn.softmax(jnp.concatenate(parts, axis=-1), axis=-1).astype(v.dtype)
    own, others = weights[..., :1], weights[..., 1 : 1 + past_k.shape[2]]
    out = jnp.einsum("rkgs,rksh->rkgh", others, past_v, preferred_element_type=jnp.float32)
    return (out + own.astype(jnp.float32) * v.astype(jnp.float32)).astype(v.dtype).reshape(rows, -1, 1, q.shape[-1])


def first_key_blocks(segments: jax.Array, window: int, size: int) -> jax.Array:
    """int32 [T / size]: the first block of keys that a query of each block sees, in any row; segments int32 [R, T].

    A token of the padding is a segment of its own here, so that padding costs little.
    """
    at = jnp.arange(segments.shape[1])
    begins = (segments != jnp.roll(segments, 1, axis=1)) | (segments == 0) | (at == 0)
    starts = jax.lax.cummax(jnp.where(begins, at, 0), axis=1)
    return jnp.maximum(starts[:, ::size].min(axis=0), at[::size] - window + 1) // size
