"""The output of the device for a step: the selected vectors in their stored dtype, and statistics of each vector.

The decoder's scan selects and converts the vectors, so memory never holds more than the stored vectors of a whole
model.
"""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from ...architecture.sites import MOMENTS, STORED, Capture
from ..weights.cpu import to_bits
from .decoder import OF_LOGITS, pick_tokens, run_blocks
from .reduce import reduced
from .row_selection import NO_TOKEN, max_samples
from .rows import Rows
from .split import Split
from .tuning import Tuning

_INT8_MAX = 127
# Pairs of a pool and a token of a row, at most, for which a product is faster than a tree: by the TPU compiler, 1.9 ms
# less in rows of 2,048 tokens with as many pools of 4 layers of Qwen2.5-0.5B on v5litepod-1.
_PRODUCT_PAIRS = 1 << 24


def compute_step(
    params: dict,
    rows: Rows,
    picks: jax.Array | tuple[jax.Array, jax.Array],
    capture: Capture,
    tuning: Tuning,
    split: Split = Split(),  # noqa: B008 - immutable
) -> dict[str, dict[str, list[jax.Array]]]:
    """Computes one step: {"rows": {output: [L, R, W, D]}, "stats": {output: fp32 [L, R, W, K]}}, for int8 "scale":
    {output: fp32 [L, R, W]}, and for moments "sum" and "squares": {site: fp32 [L, R, samples, D]}, each as a list of
    pieces of consecutive layers. An output is a site, or of a reduction. D is its width, and this device's part of it
    where devices share a copy of the weights. Features have no stats.

    By mode, vector w of row r is:
    all: token w (W = T); the mode ignores picks.
    rows: token picks[r, w] (int32 [R, W]).
    mean, max: of each value over pool w. picks are the tokens that count (bool [R, T]), and the first token of each
    pool and the token after its last one (int32 [R, W, 2]).
    Vectors of padding have arbitrary values. K: sum, L2 norm, largest magnitude; for int8 also the squares of the
    rounding errors and of the values.
    Compile without xla_allow_excess_precision. With it, XLA leaves out conversions to a narrow type and back. Then two
    sites would disagree on a bf16 number, and infinities of fp16 would stay undetected.
    """

    member = _members(rows, picks, capture.mode) if capture.moments else None
    picked = cast(jax.Array, picks) if capture.mode == "rows" else None

    def select(site, x):
        mode = "all" if picked is not None and site in OF_LOGITS else capture.mode
        return _select(x, picks, mode)

    def emit(found, layer, kept):
        selected = {site: select(site, x) for site, x in found.items()}  # XLA drops what nothing uses
        values = {
            site: x
            for site, x in selected.items()
            if site in capture.sites and not set(kept).isdisjoint(capture.layers_of(site))
        }
        for reduction in capture.reductions:
            if reduction.site in found and not set(kept).isdisjoint(reduction.layers):
                values |= reduced(selected[reduction.site], reduction, params, layer, kept, tuning, split)
        stored = {name: _store(name, x, capture, tuning, split) for name, x in values.items()}
        for site, layers in capture.moments:
            if site in found and not set(kept).isdisjoint(layers):
                stored[site] = stored.get(site, {}) | _moments(selected[site], member, split)
        return stored

    pieces = run_blocks(params, rows, capture, emit, tuning, split, picked)
    output: dict[str, dict[str, list[jax.Array]]] = {}
    of_moments = dict(capture.moments)
    for layers, found in pieces:
        for name, parts in found.items():
            for part, y in parts.items():
                own = of_moments[name] if part in MOMENTS else capture.layers_of(name)
                places = [place for place, layer in enumerate(layers) if layer in own]
                if places:
                    chosen = y if len(places) == len(layers) else y[np.asarray(places)]
                    output.setdefault(part, {}).setdefault(name, []).append(chosen)
    return output


def _select(x, picks, mode: str):
    """x [R, T, D] -> fp32 [R, W, D]."""
    if mode == "rows":
        x = pick_tokens(x, picks)
    if mode == "max":
        x = _pooled(jnp.maximum, -jnp.inf, x, *picks)
    x = x.astype(jnp.float32)
    return _means(x, *picks) if mode == "mean" else x


def _pooled(combine, neutral, x, picked, pools):
    """[R, W, D] as x: each pool's picked tokens combined; not finite where a picked value is not."""
    # Blocks of 1, 2, 4, … tokens: a pool has at most one block of each size at its begin, and one at its end.
    blocks = jnp.where(picked[:, :, None], x, neutral)
    begin, end = pools[:, :, 0], pools[:, :, 1]
    found = jnp.full((*begin.shape, x.shape[2]), neutral, x.dtype)
    while True:
        for place, is_own in ((begin, begin & 1 == 1), (end - 1, end & 1 == 1)):
            more = combine(found, pick_tokens(blocks, place))
            found = jnp.where((is_own & (begin < end))[:, :, None], more, found)
        if blocks.shape[1] == 1:
            return found
        begin, end = (begin + 1) >> 1, end >> 1
        blocks = combine(blocks[:, ::2], blocks[:, 1::2])  # T is a power of two


def _means(x, picked, pools):
    """fp32 [R, W, D]: the mean of each pool's picked tokens; not finite where a picked value is not."""
    if pools.shape[1] * x.shape[1] > _PRODUCT_PAIRS:
        counts = _pooled(jnp.add, 0, picked[:, :, None].astype(jnp.int32), picked, pools)
        return _pooled(jnp.add, 0, x, picked, pools) / jnp.maximum(counts, 1)
    place = jnp.arange(x.shape[1])
    member = (pools[:, :, :1] <= place) & (place < pools[:, :, 1:]) & picked[:, None, :]  # [R, W, T]
    return _totals(jnp.where(picked[:, :, None], x, 0), member) / jnp.maximum(member.sum(axis=2), 1)[:, :, None]


def _totals(x, member):
    """fp32 [R, P, D]: the sums of the vectors x [R, W, D] of each part, bool [R, P, W]; NaN with a broken vector."""
    broken = ~jnp.isfinite(x).all(axis=2)
    # One product adds up all parts. Infinities are left out: 0 times infinity would turn the other sums into NaN.
    total = jnp.einsum(
        "rpw,rwd->rpd",
        member.astype(jnp.float32),
        jnp.where(broken[:, :, None], 0, x),
        precision=jax.lax.Precision.HIGHEST,
    )
    return jnp.where((member & broken[:, None, :]).any(axis=2)[:, :, None], jnp.nan, total)


def _members(rows: Rows, picks, mode: str):
    """bool [R, samples, W]: whether vector w belongs to a sample of its row."""
    samples, owners = jnp.arange(1, max_samples(rows.segments.shape[1], has_moments=True) + 1), rows.segments
    if mode == "rows":
        owners = jnp.where(picks == NO_TOKEN, 0, jnp.take_along_axis(owners, jnp.maximum(picks, 0), axis=1))
    return owners[:, None, :] == samples[:, None]


def _moments(x, member, split: Split) -> dict[str, jax.Array]:
    """MOMENTS of each sample, fp32 [R, samples, D] of this device's part of D, of the vectors x [R, W, D]."""
    return {name: _own_part(_totals(y, member), split) for name, y in zip(MOMENTS, (x, x * x), strict=True)}


def _store(name: str, x, capture: Capture, tuning: Tuning, split: Split) -> dict[str, jax.Array]:
    """x [R, W, D], fp32 or the stored dtype -> vectors in that dtype, the int8 scales, and the stats [R, W, K]."""
    dtype = capture.dtype_of(name)
    if dtype != "int8":
        rows = x.astype(STORED[dtype])
        own = _own_part(rows, split)
        stored = {"rows": to_bits(own) if tuning.bf16_as_bits else own}
        return stored | ({"stats": _stats(rows.astype(jnp.float32))} if name in capture.with_device_stats else {})
    scale = jnp.abs(x).max(axis=2) / _INT8_MAX
    # A row of zeros, or a row so small that its scale is 0, is stored as zeros.
    q = jnp.where(scale[:, :, None] > 0, x / scale[:, :, None], 0)
    q = jnp.clip(jnp.round(q), -_INT8_MAX, _INT8_MAX)
    value = q * scale[:, :, None]
    return {
        "rows": _own_part(q.astype(jnp.int8), split),
        "scale": scale,
        "stats": _stats(value, ((x - value) ** 2).sum(axis=2), (x * x).sum(axis=2)),
    }


def _own_part(rows, split: Split):
    """The part of D that this device sends to the host: equal parts where the devices divide D, otherwise all of D."""
    d = rows.shape[2]
    return split.own(rows, 2, d // split.ways if d % split.ways == 0 else d)


def _stats(value, *more):
    """fp32 [R, W, 3 + len(more)]. A vector is finite when its largest magnitude is finite."""
    squares = (value * value).sum(axis=2)
    return jnp.stack([value.sum(axis=2), jnp.sqrt(squares), jnp.abs(value).max(axis=2), *more], axis=2)
