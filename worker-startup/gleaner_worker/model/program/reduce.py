"""The reductions of a site: dot products with stored directions, and the strongest features of sparse autoencoders.

In shapes: R rows of W vectors, D wide, are M = R * W vectors; F features, of this device's part of them.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas

from ...architecture.reductions import TOP_GROUP, Encoder, Reduction
from .split import Split
from .tuning import Tuning

# Of the kernel that gathers: the features of a register, the most vectors of a block, and its most bytes.
_LANES, _ROWS, _BLOCK_BYTES = 128, 128, 2 << 20
_BLOCK_VALUES = 1 << 26  # fp32 values of features that memory holds at once: 2,048 vectors of 32,768


def reduced(
    x: jax.Array, reduction: Reduction, params: dict, layer, kept: tuple[int, ...], tuning: Tuning, split: Split
) -> dict[str, jax.Array]:
    """The outputs of the reduction for the selected vectors x, fp32 [R, W, D], each [R, W, width].

    params: with "reductions", the parameters of each stacked over its layers. layer: the number of the block, known
    inside a scan only. kept: the layers of the scan, of which some may be without the reduction: they give zeros.
    """
    stacks = params["reductions"][reduction.name]

    def computed() -> list[jax.Array]:
        places = np.searchsorted(reduction.layers, np.arange(max(kept) + 1)).clip(max=len(reduction.layers) - 1)
        place = jnp.asarray(places)[layer]
        p = {name: jax.lax.dynamic_index_in_dim(stack, place, keepdims=False) for name, stack in stacks.items()}
        if reduction.encoder is None:
            return [jnp.einsum("rwd,kd->rwk", x, p["directions"], precision=jax.lax.Precision.HIGHEST)]
        return _features(x, p, reduction, tuning, split)

    has = np.isin(np.arange(max(kept) + 1), reduction.layers)
    if has[list(kept)].all():
        found = computed()
    else:
        shapes = jax.eval_shape(computed)
        found = jax.lax.cond(jnp.asarray(has)[layer], computed, lambda: [jnp.zeros(y.shape, y.dtype) for y in shapes])
    return dict(zip(reduction.outputs, found, strict=True))


def _features(x: jax.Array, p: dict, reduction: Reduction, tuning: Tuning, split: Split) -> list[jax.Array]:
    """Values fp32 and ids int32 [R, W, k], the largest value first, and the number of active features [R, W, 1].

    The order of equal values is that of their ids, so the result does not depend on the devices that share the weights.
    """
    vectors = x.reshape(-1, x.shape[-1])  # [M, D]
    count = min(len(vectors), 1 << (_BLOCK_VALUES // p["encode"].shape[0]).bit_length() - 1)
    of = partial(_features_of, p=p, reduction=reduction, tuning=tuning, split=split)
    if count == len(vectors):
        found = of(vectors)
    else:
        padded = jnp.pad(vectors, ((0, -len(vectors) % count), (0, 0)))
        found = jax.lax.map(of, padded.reshape(-1, count, padded.shape[1]))
        found = [y.reshape(-1, y.shape[-1])[: len(vectors)] for y in found]
    return [y.reshape(*x.shape[:2], -1) for y in found]


def _features_of(x: jax.Array, p: dict, reduction: Reduction, tuning: Tuning, split: Split) -> list[jax.Array]:
    """The same of vectors fp32 [M, D], as [M, k], [M, k] and [M, 1]."""
    encoder = cast(Encoder, reduction.encoder)
    h = jnp.einsum(
        "md,fd->mf", _normed(x, encoder.norm).astype(p["encode"].dtype), p["encode"], preferred_element_type=jnp.float32
    )
    value, gate = (h * p["u"] if "u" in p else h) + p["b"], h + p.get("g", p["b"])
    is_active = (gate > p.get("theta", 0)) & (value > 0)
    part = p["encode"].shape[0]
    active = split.total(is_active.sum(axis=1, keepdims=True), part, encoder.padded, jnp.int32)
    active = active if encoder.most is None else jnp.minimum(active, encoder.most)
    bits, ids = largest(jnp.where(is_active, value, 0), min(reduction.k, part), tuning)
    if part < encoder.padded:
        ids = ids + part * jax.lax.axis_index("model")
        bits, ids = (jax.lax.all_gather(y, "model", axis=1, tiled=True) for y in (bits, ids))
        bits, ids = _first(bits, ids, reduction.k)
    missing = ((0, 0), (0, reduction.k - bits.shape[1]))
    values, ids = jax.lax.bitcast_convert_type(jnp.pad(bits, missing), jnp.float32), jnp.pad(ids, missing)
    # A vector that is not finite has features that mean nothing; NaN shows it in the statistics.
    is_finite = jnp.isfinite(x).all(axis=1, keepdims=True)
    return [jnp.where(is_finite, values, jnp.nan), jnp.where(values > 0, ids, -1), active]


def _normed(x: jax.Array, norm: str) -> jax.Array:
    """x [M, D] as the product takes it, by sae_lens.saes.sae.SAE._setup_activation_normalization."""
    if norm == "layer_norm":
        x = x - x.mean(axis=1, keepdims=True)
        return x / (x.std(axis=1, keepdims=True, ddof=1) + 1e-5)
    if norm == "constant_norm_rescale":
        return x * (x.shape[1] ** 0.5 / jnp.sqrt((x * x).sum(axis=1, keepdims=True)))
    return x


def largest(values: jax.Array, k: int, tuning: Tuning) -> tuple[jax.Array, jax.Array]:
    """The bits of the k largest of values, fp32 [M, F] without negative ones, and their ids: int32 [M, k].

    Value of id j * TOP_GROUP + i is at place i * F / TOP_GROUP + j, see `places_of_ids`: so a group of neighbouring ids
    has the same place in each of TOP_GROUP planes. The k groups with the largest maxima hold the k largest values,
    because k maxima come before any value of another group; of equal maxima, the group before has the lower ids.
    """
    keys = jax.lax.bitcast_convert_type(values, jnp.int32)  # as ordered as the values
    groups = values.shape[1] // TOP_GROUP
    maxima = reduce(jnp.maximum, (keys[:, i * groups : (i + 1) * groups] for i in range(TOP_GROUP)))  # [M, groups]
    _, best = _first(maxima, jax.lax.broadcasted_iota(jnp.int32, maxima.shape, 1), min(k, groups))
    found = _members(keys, best, tuning)  # [M, TOP_GROUP, groups]
    ids = best[:, None, :] * TOP_GROUP + jnp.arange(TOP_GROUP)[:, None]
    return _first(found.reshape(len(keys), -1), ids.reshape(len(keys), -1), k)


def _first(bits: jax.Array, ids: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k largest bits with their ids; of equal ones, those with the lowest ids."""
    keys, ids = jax.lax.sort((-bits, ids), num_keys=2, is_stable=False)
    return -keys[:, :k], ids[:, :k]


def _members(keys: jax.Array, best: jax.Array, tuning: Tuning) -> jax.Array:
    """int32 [M, TOP_GROUP, n]: the keys [M, F] of the groups best [M, n]."""
    groups, wanted = keys.shape[1] // TOP_GROUP, best.shape[1]
    rows = min(_ROWS, 1 << (_BLOCK_BYTES // (4 * groups)).bit_length() - 1)  # of a block
    if not tuning.gathers or groups % _LANES or len(keys) % rows or rows < 8:
        return jnp.take_along_axis(keys.reshape(-1, TOP_GROUP, groups), best[:, None, :], axis=2)
    best = jnp.pad(best, ((0, 0), (0, -wanted % _LANES)))

    def gather(best_ref, keys_ref, out_ref):
        """A vector register has 8 vectors and 128 features: the hardware gathers among these."""
        for first in range(0, best.shape[1], _LANES):
            place = best_ref[:, first : first + _LANES]
            found = jnp.zeros_like(place)
            for begin in range(0, groups, _LANES):
                here = jnp.take_along_axis(keys_ref[:, begin : begin + _LANES], place & (_LANES - 1), axis=1)
                found = jnp.where((begin <= place) & (place < begin + _LANES), here, found)
            out_ref[:, first : first + _LANES] = found

    def block(size: int, column: Callable) -> pallas.BlockSpec:
        return pallas.BlockSpec((rows, size), lambda row, plane: (row, column(plane)))

    found = pallas.pallas_call(
        gather,
        out_shape=jax.ShapeDtypeStruct((len(keys), TOP_GROUP * best.shape[1]), jnp.int32),
        grid=(len(keys) // rows, TOP_GROUP),
        in_specs=[block(best.shape[1], lambda plane: 0), block(groups, lambda plane: plane)],
        out_specs=block(best.shape[1], lambda plane: plane),
        interpret=tuning.interpret,
    )(best, keys)
    return found.reshape(len(keys), TOP_GROUP, -1)[:, :, :wanted]
