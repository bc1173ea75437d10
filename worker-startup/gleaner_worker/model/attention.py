"""Causal, grouped-query attention over a window, in blocks of queries that skip the keys outside of their window."""

import jax
import jax.numpy as jnp

_QUERY_BLOCK = {"cpu": 64}  # 256 elsewhere: a block and its intermediate values fit the caches
_MAX_QUERY_BLOCKS = 32  # each is compiled by itself
_KEY_STEP = 128  # keys are skipped in multiples of this, the width of a TPU's lanes


def attend(q: jax.Array, k: jax.Array, v: jax.Array, window: int, scale: float, softcap: float | None) -> jax.Array:
    """q [B, T, K, G, H]; k, v [B, T, K, H] -> [B, T, K, G, H]. A token sees itself and up to `window` - 1 before it.

    Products are summed and the softmax is taken in fp32 for inputs of any type. Most of the T x T scores that the mask
    removes are never computed. Memory holds the scores of one block at a time: [B, K, block * G, keys] fp32.
    """
    b, length, kv, group, h = q.shape
    block = max(_QUERY_BLOCK.get(jax.default_backend(), 256), length // _MAX_QUERY_BLOCKS)
    q = jnp.moveaxis(q, 2, 1)  # [B, K, T, G, H]
    k, v = jnp.moveaxis(k, 2, 1), jnp.moveaxis(v, 2, 1)  # [B, K, T, H]
    out = []
    for begin in range(0, length, block):
        end = min(begin + block, length)
        first = max(0, begin - window + 1) // _KEY_STEP * _KEY_STEP
        # The queries of a group share their keys. As rows of one matrix they make one large product.
        queries = q[:, :, begin:end].reshape(b, kv, (end - begin) * group, h)
        scores = jnp.einsum("bkqh,bksh->bkqs", queries, k[:, :, first:end], preferred_element_type=jnp.float32) * scale
        if softcap is not None:
            scores = jnp.tanh(scores / softcap) * softcap
        distance = jnp.arange(begin, end)[:, None] - jnp.arange(first, end)[None, :]
        seen = jnp.repeat((distance >= 0) & (distance < window), group, axis=0)
        scores = jnp.where(seen, scores, -jnp.inf)
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True)).astype(v.dtype)
        # The product and the sum below both read the weights; without the barrier XLA computes them twice.
        weights = jax.lax.optimization_barrier(weights)
        rows = jnp.einsum("bkqs,bksh->bkqh", weights, v[:, :, first:end], preferred_element_type=jnp.float32)
        rows = rows / weights.astype(jnp.float32).sum(axis=-1, keepdims=True)
        out.append(rows.astype(v.dtype).reshape(b, kv, end - begin, group, h))
    return jnp.moveaxis(jnp.concatenate(out, axis=2), 1, 2)
