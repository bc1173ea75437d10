"""Moves the weights of a model from its files to the devices, layer by layer."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp

from ...architecture.config import DecoderConfig
from .cpu import host_bits
from .mesh import Layout, parameter_specs
from .reduction_weights import ReductionWeights
from .tensors import layers_with
from .weights import Weights, parameter_shapes, reduction_shapes


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

    blocks = jax.jit(empty, out_shardings=stacked)()
    put = jax.jit(_put, out_shardings=stacked, donate_argnums=0)
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


def place_reductions(each: Sequence[ReductionWeights], layout: Layout, config: DecoderConfig, dtype: str) -> dict:
    """The parameters of reductions on the devices, as reduction_shapes describes them. The host holds one layer.

    Raises the errors of ReductionWeights.layer.
    """
    shapes = reduction_shapes([weights.reduction for weights in each], dtype)
    specs = parameter_specs(shapes, config, layout.model)
    placed = {}
    for weights in each:
        reduction, own = weights.reduction, shapes[weights.reduction.name]
        stacked = {name: layout.sharding(*spec) for name, spec in specs[reduction.name].items()}
        single = {name: layout.sharding(*spec[1:]) for name, spec in specs[reduction.name].items()}
        empty = partial(jax.tree.map, lambda shape: jnp.zeros(shape.shape, shape.dtype), own)
        stacks = jax.jit(empty, out_shardings=stacked)()
        put = jax.jit(_put, out_shardings=stacked, donate_argnums=0)
        for place, number in enumerate(reduction.layers):
            layer = jax.device_put(weights.layer(number, layout.model, dtype), single)
            stacks = jax.block_until_ready(put(stacks, layer, dict.fromkeys(layer, place)))
        placed[reduction.name] = stacks
    return placed


def _put(stacks: dict, layer: dict, places: dict) -> dict:
    update = jax.lax.dynamic_update_index_in_dim
    return stacks | {name: update(stacks[name], array, places[name], 0) for name, array in layer.items()}
