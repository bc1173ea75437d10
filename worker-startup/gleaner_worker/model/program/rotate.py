"""Rotary position embeddings: tables of angles, made once on the host, and the rotation of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np

from ...architecture.rope import Rope, inverse_frequencies


def rope_tables(
    ropes: tuple[Rope, ...], rotary_dim: int, length: int, is_long: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, fp32 [ropes, length, rotary_dim / 2]: bf16 would round position 257 to 256.

    numpy makes them, so every backend has the same tables. is_long: see inverse_frequencies.
    """
    frequency = np.stack([inverse_frequencies(rope, rotary_dim, is_long) for rope in ropes])
    scale = np.asarray([rope.attention_factor for rope in ropes], np.float32)[:, None, None]
    angle = np.arange(length, dtype=np.float32)[:, None] * frequency[:, None, :]
    return np.cos(angle) * scale, np.sin(angle) * scale


def angles(
    ropes: tuple[Rope, ...], rotary_dim: int, segments: jax.Array, positions: jax.Array, length: int
) -> list[jax.Array]:
    """Cosines and sines of every token: fp32 [ropes, R, 1, T, rotary_dim / 2]; segments, positions int32 [R, T].

    length: above each position.
    """

    def of(is_long: bool) -> list[jax.Array]:
        tables = rope_tables(ropes, rotary_dim, length, is_long)
        return [jnp.asarray(table)[:, positions][:, :, None] for table in tables]

    limits = [rope.original_positions if rope.kind == "longrope" else length for rope in ropes]
    if min(limits) >= length:
        return of(False)
    ends = (segments != jnp.roll(segments, -1, axis=1)).at[:, -1].set(True)
    last = jax.lax.cummin(jnp.where(ends, jnp.arange(ends.shape[1]), length), axis=1, reverse=True)
    lengths = jnp.take_along_axis(positions, last, axis=1) + 1  # of each token's sample
    is_long = (lengths > jnp.asarray(limits)[:, None, None])[:, :, None, :, None]
    return [jnp.where(is_long, long, short) for long, short in zip(of(True), of(False), strict=True)]


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array, dtype, scale: float = 1.0) -> jax.Array:
    """Turns the pairs (i, i + D) of the first 2 D dimensions of fp32 x [..., head_dim], times `scale`; rounds to
    `dtype` once.

    cos, sin: fp32 [..., D], as `angles` gives them for the positions of x.
    """
    half = cos.shape[-1]
    pairs = x[..., : 2 * half].reshape(*x.shape[:-1], 2, half)
    signs = np.array([[-1], [1]], np.float32)
    # A flip is one operation of XLA. Two halves and their concatenation are three.
    turned = pairs * cos[..., None, :] + jnp.flip(pairs, axis=-2) * (sin[..., None, :] * signs)
    turned = (turned * scale).astype(dtype).reshape(*x.shape[:-1], 2 * half)
    kept = (x[..., 2 * half :] * scale).astype(dtype)
    return jnp.concatenate([turned, kept], axis=-1) if kept.shape[-1] else turned
