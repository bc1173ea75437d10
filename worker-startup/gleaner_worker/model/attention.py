"""Causal, grouped-query attention over a window, in blocks of queries that skip the keys they cannot see."""

import jax
import jax.numpy as jnp

_QUERY_BLOCK = 256
_MAX_QUERY_BLOCKS = 32  # each is compiled separately
_KEY_STEP = 128  # keys are skipped in steps of this many, which is the width of a TPU's lanes


def attend(q: jax.Array, k: jax.Array, v: jax.Array, window: int, scale: float, softcap: float | None) -> jax.Array:
    """q [B, T, K, G, H]; k, v [B, T, K, H] -> [B, T, K, G, H]. A token sees itself and up to `window` - 1 before it.

    Products are summed and the softmax is taken in fp32, whatever the inputs are. Of T x T scores, those that the mask
    would remove are mostly not computed; those of one block, [B, K, G, block, keys] fp32, are in memory at a time.
    """
    length = q.shape[1]
    block = max(_QUERY_BLOCK, length // _MAX_QUERY_BLOCKS)
    q = jnp.moveaxis(q, 1, 3)  # [B, K, G, T, H]
    k, v = jnp.moveaxis(k, 1, 2), jnp.moveaxis(v, 1, 2)  # [B, K, T, H]
    out = []
    for begin in range(0, length, block):
        end = min(begin + block, length)
        first = max(0, begin - window + 1) // _KEY_STEP * _KEY_STEP
        keys, values = k[:, :, first:end], v[:, :, first:end]
        scores = jnp.einsum("bkgqh,bksh->bkgqs", q[:, :, :, begin:end], keys, preferred_element_type=jnp.float32)
        scores = scores * scale
        if softcap is not None:
            scores = jnp.tanh(scores / softcap) * softcap
        distance = jnp.arange(begin, end)[:, None] - jnp.arange(first, end)[None, :]
        scores = jnp.where((distance >= 0) & (distance < window), scores, -jnp.inf)
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
        rows = jnp.einsum("bkgqs,bksh->bkgqh", weights.astype(v.dtype), values, preferred_element_type=jnp.float32)
        out.append((rows / weights.sum(axis=-1, keepdims=True)).astype(v.dtype))
    return jnp.moveaxis(jnp.concatenate(out, axis=3), 3, 1)
