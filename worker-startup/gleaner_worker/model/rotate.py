"""Rotary position embeddings on the device: tables of angles, and the rotation of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np

from .rope import Rope, inverse_frequencies


def rope_tables(ropes: tuple[Rope, ...], head_dim: int, length: int) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines, fp32 [ropes, T, head_dim / 2]: bf16 would round position 257 to 256."""
    frequency = jnp.asarray(np.stack([inverse_frequencies(rope, head_dim) for rope in ropes]))
    scale = jnp.asarray([rope.attention_factor for rope in ropes], jnp.float32)[:, None, None]
    angle = jnp.arange(length, dtype=jnp.float32)[:, None] * frequency[:, None, :]
    return jnp.cos(angle) * scale, jnp.sin(angle) * scale


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Turns the pairs (i, i + head_dim / 2) of x [..., head_dim]; fp32."""
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
