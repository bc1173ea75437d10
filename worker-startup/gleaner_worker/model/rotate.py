"""Rotary position embeddings: tables of angles, made once on the host, and the rotation of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np

from .rope import Rope, inverse_frequencies


def rope_tables(ropes: tuple[Rope, ...], head_dim: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, fp32 [ropes, length, head_dim / 2]: bf16 would round position 257 to 256.

    numpy makes them, so every backend has the same tables.
    """
    frequency = np.stack([inverse_frequencies(rope, head_dim) for rope in ropes])
    scale = np.asarray([rope.attention_factor for rope in ropes], np.float32)[:, None, None]
    angle = np.arange(length, dtype=np.float32)[:, None] * frequency[:, None, :]
    return np.cos(angle) * scale, np.sin(angle) * scale


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array, dtype, scale: float = 1.0) -> jax.Array:
    """Turns the pairs (i, i + head_dim / 2) of fp32 x [..., head_dim], times `scale`; rounds to `dtype` once.

    cos, sin: fp32 [..., head_dim / 2], as rope_tables gives them for the positions of x.
    """
    first, second = jnp.split(x, 2, axis=-1)
    turned = first * cos - second * sin, second * cos + first * sin
    # Rounding before the concatenation halves the bytes of the copy.
    return jnp.concatenate([(half * scale).astype(dtype) for half in turned], axis=-1)
