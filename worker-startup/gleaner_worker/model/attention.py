"""Causal, grouped-query attention over a window, among the tokens of one segment of a row.

Two forms of one function: the splash kernel of JAX on a TPU, and blocks of queries elsewhere. Both sum products and
take the softmax in fp32 for inputs of any type, and neither holds T x T scores in memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from .tuning import Tuning

_MAX_QUERY_BLOCKS = 32  # each is compiled by itself
_KEY_STEP = 128  # keys are skipped in multiples of this, the width of a TPU's lanes
_KERNEL_QUERIES, _KERNEL_KEYS = 512, 1024  # of one block of the kernel


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segments: jax.Array,
    *,
    window: int,
    softcap: float | None,
    tuning: Tuning,
) -> jax.Array:
    """q [R, N, T, H], scaled; k, v [R, K, T, H]; segments int32 [R, T] -> [R, N, T, H].

    A token sees itself and the tokens of its own segment among the `window` - 1 tokens before it.
    softcap: scores become tanh(scores / softcap) * softcap, as in Gemma 2.
    """
    form: Callable[..., jax.Array] = _splash if tuning.attention == "splash" else _blocks
    return form(q, k, v, segments, window, softcap, tuning)


def _splash(q, k, v, segments, window: int, softcap: float | None, tuning: Tuning) -> Any:
    heads, length = q.shape[1:3]
    # The window counts the token itself; the mask counts the tokens to its left.
    mask = masks.MultiHeadMask([masks.LocalMask((length, length), (window - 1, 0), offset=0)] * heads)
    keys = min(_KERNEL_KEYS, length)
    sizes = splash.BlockSizes(
        block_q=min(_KERNEL_QUERIES, length), block_kv=keys, block_kv_compute=min(_KERNEL_QUERIES, keys)
    )
    kernel = splash.make_splash_mha_single_device(
        mask, block_sizes=sizes, attn_logits_soft_cap=softcap, interpret=tuning.interpret
    )
    return jax.vmap(lambda q, k, v, ids: kernel(q, k, v, segment_ids=splash.SegmentIds(ids, ids)))(q, k, v, segments)


def _blocks(q, k, v, segments, window: int, softcap: float | None, tuning: Tuning):
    """Skips the keys that no query of a block can see."""
    rows, heads, length, h = q.shape
    q = q.reshape(rows, k.shape[1], -1, length, h)  # [R, K, G, T, H]
    size = max(tuning.query_block, length // _MAX_QUERY_BLOCKS)
    block = partial(_block, q, k, v, segments, window, softcap)
    out = [block(begin, min(begin + size, length)) for begin in range(0, length, size)]
    return jnp.concatenate(out, axis=3).reshape(rows, heads, length, h)


def _block(q, k, v, segments, window: int, softcap: float | None, begin: int, end: int):
    first = max(0, begin - window + 1) // _KEY_STEP * _KEY_STEP
    scores = jnp.einsum(
        "rkgqh,rksh->rkgqs", q[:, :, :, begin:end], k[:, :, first:end], preferred_element_type=jnp.float32
    )
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    distance = jnp.arange(begin, end)[:, None] - jnp.arange(first, end)[None, :]
    seen = (distance >= 0) & (distance < window) & (segments[:, begin:end, None] == segments[:, None, first:end])
    scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
    weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True)).astype(v.dtype)
    rows = jnp.einsum("rkgqs,rksh->rkgqh", weights, v[:, :, first:end], preferred_element_type=jnp.float32)
    return (rows / weights.astype(jnp.float32).sum(axis=-1, keepdims=True)).astype(v.dtype)
