"""Causal, grouped-query attention over a window, in blocks of queries that skip the keys they cannot see."""

import jax
import jax.numpy as jnp

_QUERY_BLOCK = {"cpu": 64}  # on others 256: what fits their caches with all that is made of it
_MAX_QUERY_BLOCKS = 32  # each is compiled separately
_KEY_STEP = 128  # keys are skipped in steps of this many, which is the width of a TPU's lanes


def attend(q: jax.Array, k: jax.Array, v: jax.Array, window: int, scale: float, softcap: float | None) -> jax.Array:
    """q [B, T, K, G, H]; k, v [B, T, K, H] -> [B, T, K, G, H]. A token sees itself and up to `window` - 1 before it.

    Products are summed and the softmax is taken in fp32, whatever the inputs are. Of T x T scores, those that the mask
    would remove are mostly not computed; those of one block, [B, K, block * G, keys] fp32, are in memory at a time.
    """
    b, length, kv, group, h = q.shape
    block = max(_QUERY_BLOCK.get(jax.default_backend(), 256), length // _MAX_QUERY_BLOCKS)
    q = jnp.moveaxis(q, 2, 1)  # [B, K, T, G, H]
    k, v = jnp.moveaxis(k, 2, 1), jnp.moveaxis(v, 2, 1)  # [B, K, T, H]
    out = []
    for begin in range(0, length, block):
        end = min(begin + block, length)
        first = max(0, begin - window + 1) // _KEY_STEP * _KEY_STEP
        # The queries of a group share their keys: as rows of one matrix, their product is a large one.
        queries = q[:, :, begin:end].reshape(b, kv, (end - begin) * group, h)
        scores = jnp.einsum("bkqh,bksh->bkqs", queries, k[:, :, first:end], preferred_element_type=jnp.float32) * scale
        if softcap is not None:
            scores = jnp.tanh(scores / softcap) * softcap
        distance = jnp.arange(begin, end)[:, None] - jnp.arange(first, end)[None, :]
        seen = jnp.repeat((distance >= 0) & (distance < window), group, axis=0)
        scores = jnp.where(seen, scores, -jnp.inf)
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True)).astype(v.dtype)
        # Both the product and the sum below read these; without the barrier XLA computes them once for each.
        weights = jax.lax.optimization_barrier(weights)
        rows = jnp.einsum("bkqs,bksh->bkqh", weights, v[:, :, first:end], preferred_element_type=jnp.float32)
        rows = rows / weights.astype(jnp.float32).sum(axis=-1, keepdims=True)
        out.append(rows.astype(v.dtype).reshape(b, kv, end - begin, group, h))
    return jnp.moveaxis(jnp.concatenate(out, axis=2), 1, 2)
