"""The devices that share one copy of the weights."""

from dataclasses import dataclass

import jax


@dataclass(frozen=True)
class Split:
    """The devices that share one copy of the weights, along the mesh axis `model`."""

    ways: int = 1

    def total(self, x: jax.Array, part: int, whole: int, dtype) -> jax.Array:
        """The sum of x over the devices, each with `part` of `whole` terms; x itself where `part` is `whole`."""
        return jax.lax.psum(x.astype(dtype), "model") if part < whole else x

    def gather(self, x: jax.Array, whole: int) -> jax.Array:
        """x with all `whole` values of its last axis."""
        return jax.lax.all_gather(x, "model", axis=x.ndim - 1, tiled=True) if x.shape[-1] < whole else x

    def all_heads(self, x: jax.Array, count: int) -> jax.Array:
        """x [R, heads, T, H] with all `count` heads; devices may share heads."""
        if x.shape[1] == count:
            return x
        heads = jax.lax.all_gather(x, "model", axis=1, tiled=True)
        return heads[:, :: heads.shape[1] // count]

    def own(self, x: jax.Array, axis: int, count: int) -> jax.Array:
        """The `count` entries along `axis` that this device uses; devices may share entries."""
        if x.shape[axis] == count:
            return x
        parts = x.shape[axis] // count
        begin = jax.lax.axis_index("model") * parts // self.ways * count
        return jax.lax.dynamic_slice_in_dim(x, begin, count, axis)
