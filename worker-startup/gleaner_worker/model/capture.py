"""The output of the device for a batch: the selected rows in their stored dtype, and statistics of them.

The decoder's scan selects and converts the rows, so memory never holds more than the stored rows of a whole model.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from .config import DecoderConfig
from .decoder import run_blocks

STORED = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "int8": np.dtype(np.int8),
}
# Statistics of the stored values, per layer: the sum of all values, the sum of the rows' L2 norms, the largest
# magnitude, and the number of rows with a value that is not finite. int8 adds the squares of the rounding errors and of
# the values.
STATS = ("sum", "norm_sum", "max_abs", "non_finite")
INT8_STATS = (*STATS, "squared_error", "squares")
_INT8_MAX = 127


@dataclass(frozen=True)
class Capture:
    """The computation of every batch. Hashable: static under jit."""

    config: DecoderConfig
    layers: tuple[int, ...]
    sites: tuple[str, ...]
    mode: str  # "all" tokens, picked "rows", or the "mean" of picked tokens
    dtype: str  # a key of STORED

    @property
    def stats_columns(self) -> tuple[str, ...]:
        return INT8_STATS if self.dtype == "int8" else STATS

    @property
    def row_bytes(self) -> int:
        """The bytes of one stored row over all sites and layers, scales included."""
        per_row = self.config.d_model * STORED[self.dtype].itemsize + (4 if self.dtype == "int8" else 0)
        return len(self.sites) * len(self.layers) * per_row


def capture(params: dict, token_ids: jax.Array, picks: jax.Array, counts: jax.Array, what: Capture, pin=lambda x: x):
    """Computes one batch: {"rows": {site: [L, B, W, D]}, "stats": {site: fp32 [L, B, K]}} and, for int8, "scale":
    {site: fp32 [L, B, W]}. bf16 rows are their bits, uint16: to add one layer, XLA's CPU would widen all layers to
    fp32.

    token_ids: int32 [B, T], padded on the right. counts: int32 [B], 0 for a dummy. By mode:
    all: W = T, and the first counts[b] rows of b are real; the mode ignores picks.
    rows: row w of b is token picks[b, w] (int32 [B, W]), real for w < counts[b].
    mean: W = 1, the mean of the counts[b] tokens that picks (bool [B, T]) marks.
    Rows that are not real have arbitrary values and never count in the stats. pin: applied to every site's [B, T, D].
    Compile without xla_allow_excess_precision. With it, XLA leaves out conversions to a narrow type and back. Then two
    sites would disagree on a bf16 number, and infinities of fp16 would stay undetected.
    """

    def one(x):
        x, real = _select(pin(x).astype(jnp.float32), picks, counts, what.mode)
        return _store(x, real, what.dtype)

    kept = run_blocks(
        params, token_ids, what.config, what.layers, lambda sites: {site: one(sites[site]) for site in what.sites}
    )
    parts = ("rows", "stats", "scale") if what.dtype == "int8" else ("rows", "stats")
    return {part: {site: kept[site][part] for site in what.sites} for part in parts}


def _select(x, picks, counts, mode: str):
    """fp32 x [B, T, D] -> the rows [B, W, D] and which of them are real, bool [B, W]."""
    if mode == "mean":
        # Selected before the sum, not multiplied by 0 in it: a token that is not picked may hold an infinity.
        total = jnp.where(picks[:, :, None], x, 0).sum(axis=1, keepdims=True)
        return total / jnp.maximum(counts, 1)[:, None, None], counts[:, None] > 0
    if mode == "rows":
        x = jnp.take_along_axis(x, picks[:, :, None], axis=1, mode="clip")
    return x, jnp.arange(x.shape[1]) < counts[:, None]


def _store(x, real, dtype: str) -> dict[str, jax.Array]:
    """fp32 x [B, W, D] -> rows in the stored dtype, the int8 scales, and the stats [B, K] of the real rows."""
    if dtype != "int8":
        rows = x.astype(STORED[dtype])
        value = rows.astype(jnp.float32)
        largest = jnp.abs(value).max(axis=2)  # [B, W]; NaN where a value is
        if dtype == "bf16":
            rows = jax.lax.bitcast_convert_type(rows, jnp.uint16)
        return {"rows": rows, "stats": _stats(value, largest, largest, real)}
    largest = jnp.abs(x).max(axis=2)
    scale = largest / _INT8_MAX
    # A row of zeros, or a row so small that its scale is 0, is stored as zeros.
    q = jnp.where(scale[:, :, None] > 0, x / scale[:, :, None], 0)
    q = jnp.clip(jnp.round(q), -_INT8_MAX, _INT8_MAX)
    value = q * scale[:, :, None]
    error, squares = (jnp.where(real, (y * y).sum(axis=2), 0).sum(axis=1) for y in (x - value, x))
    stats = _stats(value, jnp.abs(value).max(axis=2), largest, real)
    stats = jnp.concatenate([stats, jnp.stack([error, squares], axis=1)], axis=1)
    return {"rows": q.astype(jnp.int8), "scale": scale, "stats": stats}


def _stats(value, stored_largest, computed_largest, real):
    """[B, 4]: STATS over the real rows of each sample. A row is finite when its largest computed value is."""
    total = jnp.where(real, value.sum(axis=2), 0).sum(axis=1)
    norms = jnp.where(real, jnp.sqrt((value * value).sum(axis=2)), 0).sum(axis=1)
    largest = jnp.where(real, stored_largest, 0).max(axis=1)
    broken = (real & ~jnp.isfinite(computed_largest)).sum(axis=1).astype(jnp.float32)
    return jnp.stack([total, norms, largest, broken], axis=1)
