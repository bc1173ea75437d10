"""bf16 as its bits, uint16, on XLA's CPU backend, which the tests and the local cloud use.

To index or to fill a stack of bf16 layers, that backend converts the whole stack to fp32 in every layer. Integers stay
as they are. A TPU needs none of this.
"""

import jax
import jax.numpy as jnp
import numpy as np


def host_bits(array: np.ndarray) -> np.ndarray:
    """The bits of a bf16 array in host memory; any other array unchanged."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def to_bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def from_bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x
