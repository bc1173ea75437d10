"""Moves the weights of a model from its files to the devices, layer by layer."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp

from .cpu import host_bits
from .mesh import Layout, parameter_specs
from .tensors import layers_with
from .weights import Weights, parameter_shapes


def place(weights: Weights, layout: Layout, as_bits: bool) -> dict:
    """The parameters on the devices, as parameter_shapes describes them; as_bits: blocks of bf16 as uint16 (cpu.py).

    The host holds two layers at most, or what is outside of the layers: while one moves to the devices, a thread reads
    the next. A device holds its weights and one layer more. Raises Failure("model") when a file cannot be read.
    """
    shapes = parameter_shapes(weights.config, weights.num_layers, weights.dtype, weights.end)
    specs = parameter_specs(shapes, weights.config, layout.model)
    outer = {
        name: jax.device_put(array, layout.sharding(*specs[name])).block_until_ready()
        for name, array in weights.outer().items()
    }
    ranks = {name: len(shape.shape) for name, shape in shapes["blocks"].items()}
    stacked = {name: layout.place(name, spec, ranks[name]) for name, spec in specs["blocks"].items()}
    single = {name: layout.sharding(*spec[1:]) for name, spec in specs["blocks"].items()}

    def empty() -> dict:
        return {
            name: jnp.zeros(shape.shape, jnp.uint16 if as_bits and shape.dtype == jnp.bfloat16 else shape.dtype)
            for name, shape in shapes["blocks"].items()
        }

    def put(blocks: dict, layer: dict, places: dict) -> dict:
        update = jax.lax.dynamic_update_index_in_dim
        return blocks | {name: update(blocks[name], array, places[name], 0) for name, array in layer.items()}

    blocks = jax.jit(empty, out_shardings=stacked)()
    put = jax.jit(put, out_shardings=stacked, donate_argnums=0)
    with ThreadPoolExecutor(1, "layers") as pool:
        next_layer = pool.submit(weights.layer, 0)
        for number in range(weights.num_layers):
            host = next_layer.result()
            if number + 1 < weights.num_layers:
                next_layer = pool.submit(weights.layer, number + 1)
            layer = {name: host_bits(array) if as_bits else array for name, array in host.items()}
            places = {name: len(layers_with(weights.config, name, number)) for name in layer}
            blocks = put(blocks, jax.device_put(layer, {name: single[name] for name in layer}), places)
            del host, layer
            jax.block_until_ready(blocks)  # before the layer after the next is read
    return outer | {"blocks": blocks}
