"""The reductions of a site: dot products with stored directions, and the strongest features of sparse autoencoders.

In shapes: R rows of W vectors, D wide, are M = R * W vectors; F features, of this device's part of them.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...architecture.reductions import TOP_GROUP, Encoder, Reduction
from .split import Split

_BLOCK_VALUES = 1 << 26  # fp32 values of features that memory holds at once: 2,048 vectors of 32,768


def reduce(
    x: jax.Array, reduction: Reduction, params: dict, layer, kept: tuple[int, ...], split: Split
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
        return _features(x, p, reduction, reduction.encoder, split)

    def zeros() -> list[jax.Array]:
        types = [jnp.int32 if dtype == "int32" else jnp.float32 for _, dtype in reduction.outputs.values()]
        return [
            jnp.zeros((*x.shape[:2], width), dtype)
            for (width, _), dtype in zip(reduction.outputs.values(), types, strict=True)
        ]

    if set(kept) <= set(reduction.layers):
        return dict(zip(reduction.outputs, computed(), strict=True))
    has = np.isin(np.arange(max(kept) + 1), reduction.layers)
    return dict(zip(reduction.outputs, jax.lax.cond(jnp.asarray(has)[layer], computed, zeros), strict=True))


def _features(x: jax.Array, p: dict, reduction: Reduction, encoder: Encoder, split: Split) -> list[jax.Array]:
    """Values fp32 and ids int32 [R, W, k], the largest value first, and the number of active features [R, W, 1].

    The order of equal values is that of their ids, so the result does not depend on the devices that share the weights.
    """
    vectors = x.reshape(-1, x.shape[-1])  # [M, D]
    count = min(len(vectors), max(1, _BLOCK_VALUES // p["encode"].shape[0]))
    of = partial(_features_of, p=p, reduction=reduction, encoder=encoder, split=split)
    if count == len(vectors):
        found = of(vectors)
    else:
        padded = jnp.pad(vectors, ((0, -len(vectors) % count), (0, 0)))
        found = jax.lax.map(of, padded.reshape(-1, count, padded.shape[1]))
        found = [y.reshape(-1, y.shape[-1])[: len(vectors)] for y in found]
    return [y.reshape(*x.shape[:2], -1) for y in found]


def _features_of(x: jax.Array, p: dict, reduction: Reduction, encoder: Encoder, split: Split) -> list[jax.Array]:
    """The same of vectors fp32 [M, D], as [M, k], [M, k] and [M, 1]."""
    h = jnp.einsum(
        "md,fd->mf", _normed(x, encoder.norm).astype(p["encode"].dtype), p["encode"], preferred_element_type=jnp.float32
    )
    value, gate = (h * p["u"] if encoder.is_gated else h) + p["b"], h + p["g" if encoder.is_gated else "b"]
    is_active = (gate > (p["theta"] if encoder.has_thresholds else 0)) & (value > 0)
    part = p["encode"].shape[0]
    active = split.total(is_active.sum(axis=1, keepdims=True), part, encoder.padded, jnp.int32)
    active = active if encoder.most is None else jnp.minimum(active, encoder.most)
    bits, ids = largest(jnp.where(is_active, value, 0), min(reduction.k, part))
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


def largest(values: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The bits of the k largest of values, fp32 [M, F] without negative ones, and their ids: int32 [M, k].

    Value of id j * TOP_GROUP + i is at place i * F / TOP_GROUP + j, see `places_of_ids`: so groups of neighbouring ids
    are columns, and their maxima need no movement inside of a vector register. The k groups with the largest maxima
    hold the k largest values, because k maxima come before any value of another group; of equal maxima, the group
    before has the lower ids.
    """
    rows, size = values.shape
    keys = jax.lax.bitcast_convert_type(values, jnp.int32).reshape(rows, TOP_GROUP, -1)  # as ordered as the values
    groups = size // TOP_GROUP
    order = jax.lax.broadcasted_iota(jnp.int32, (rows, groups), 1)
    best = jax.lax.sort((-keys.max(axis=1), order), num_keys=2)[1][:, : min(k, groups)]  # [M, groups]
    found = jnp.take_along_axis(keys, best[:, None, :], axis=2)  # [M, TOP_GROUP, groups]
    ids = best[:, None, :] * TOP_GROUP + jnp.arange(TOP_GROUP)[:, None]
    return _first(found.reshape(rows, -1), ids.reshape(rows, -1), k)


def _first(bits: jax.Array, ids: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k largest bits with their ids; of equal ones, those with the lowest ids."""
    keys, ids = jax.lax.sort((-bits, ids), num_keys=2)
    return -keys[:, :k], ids[:, :k]


def places_of_ids(features: int, ways: int) -> np.ndarray:
    """int64 [features]: the feature at each place of the parameters, for weights split `ways` ways."""
    part = np.arange(features // ways).reshape(-1, TOP_GROUP).T.ravel()
    return np.concatenate([part + way * (features // ways) for way in range(ways)])
