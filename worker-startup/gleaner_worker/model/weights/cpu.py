"""bf16 as uint16 bits on XLA's CPU backend, which the tests and the local cloud use.

To index or to fill a stack of bf16 layers, that backend converts the whole stack to fp32 for each layer. Integers need
no conversion. A TPU keeps bf16.
"""

import jax
import jax.numpy as jnp
import numpy as np


def host_bits(array: np.ndarray) -> np.ndarray:
    """The bits of a bf16 array in host memory; any other array unchanged."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def to_bits(x: jax.Array) -> jax.Array:
    """The bits of a bf16 array as uint16; any other array unchanged."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def from_bits(x: jax.Array) -> jax.Array:
    """The bf16 array of uint16 bits; any other array unchanged."""
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x
