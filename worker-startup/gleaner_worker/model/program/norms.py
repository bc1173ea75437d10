"""The norms of every family. They compute in fp32, and return the type of their input."""

import jax
import jax.numpy as jnp

from ...architecture.config import DecoderConfig
from .split import Split


def norm(x, name: str, p: dict, config: DecoderConfig):
    """The norm `name` of x [..., D], with its weights in p."""
    if not config.layer_norm:
        return rms_norm(x, p[name], config)
    x32 = x.astype(jnp.float32)
    x32 = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + config.norm_eps)
    return (x32 * p[name] + p[f"{name}_bias"]).astype(x.dtype)


def rms_norm(x, weight, config: DecoderConfig, mean=None):
    """Some families round x [..., D] before they apply the weights; others round after.

    mean: of the squares; None for the mean over the last axis.
    """
    x32 = x.astype(jnp.float32)
    squares = x32 * x32
    squares = mean(squares) if mean else jnp.mean(squares, axis=-1, keepdims=True)
    x32 = x32 * jax.lax.rsqrt(squares + config.norm_eps)
    if config.norm_rounds_last:
        return (x32 * (weight.astype(jnp.float32) + config.norm_offset)).astype(x.dtype)
    return x32.astype(x.dtype) * (weight + jnp.asarray(config.norm_offset, weight.dtype)).astype(x.dtype)


def norm_over_heads(x, weight, config: DecoderConfig, split: Split):
    """The norm of x [R, N, T, H] over all heads of a token, on all devices; weight [N * H]."""

    def mean(squares):
        own = squares.mean(axis=(1, 3), keepdims=True)  # [R, 1, T, 1]
        # Where devices share heads, every head counts equally often.
        return jax.lax.pmean(own, "model") if split.ways > 1 else own

    return rms_norm(x, weight.reshape(-1, 1, config.head_dim), config, mean)
