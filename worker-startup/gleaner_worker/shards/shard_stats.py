"""Statistics of a shard's values: means, norms, largest magnitudes, zeros, and for int8 the error of rounding."""

import math
from itertools import zip_longest
from typing import Any

import numpy as np

from ..model.model import Model
from .index import row_positions
from .plan import ShardPlan
from .row_statistics import ZEROS_EVERY, active_stats, largest_by_range, position_ranges, quantiles
from .shard_buffer import ShardBuffer


def shard_stats(shard: ShardBuffer, model: Model) -> dict[str, dict[str, Any]]:
    """The statistics of each `{site}.{layer}`. Sums over samples are exact, so their order changes no bit.

    mean: of all values; norm: the mean L2 norm of a row; max_abs: the largest magnitude; zeros: the share of zeros in
    every ZEROS_EVERY-th row; norm_quantiles: the L2 norms of rows at QUANTILES; max_abs_by_position: the largest
    magnitude by position_ranges, empty for pools. int8 adds mean_square, of the values before rounding, and int8_error,
    the L2 norm of all rounding errors over that of all values. Features add those of active_stats.
    """
    stats_by_name, capture = {}, model.capture
    ranges = position_ranges(positions_of(shard.plan))
    encoded = {each.name: each for each in capture.reductions if each.encoder}
    for site, sums in shard.sums.items():
        values = max(shard.plan.rows, 1) * capture.width(site)
        for position, layer in enumerate(capture.layers_of(site)):
            by_sample = dict(zip(capture.stats_columns(site), sums[position].T, strict=True))
            folded = {name: math.fsum(column) for name, column in by_sample.items()}
            stats = {
                "mean": folded["sum"] / values,
                "norm": folded["norm_sum"] / max(shard.plan.rows, 1),
                "max_abs": float(by_sample["max_abs"].max(initial=0.0)),
                "zeros": share_of_zeros(shard.rows[site][position][::ZEROS_EVERY]),
            }
            if "squares" in folded:
                stats["mean_square"] = folded["squares"] / values
                stats["int8_error"] = _ratio(folded["squared_error"], folded["squares"])
            if site in encoded:
                stats |= active_stats(shard.rows[f"{site}_active"][position], encoded[site].k)
            norms, largest = shard.row_stats[site][position].T
            lists = {"norm_quantiles": quantiles(norms), "max_abs_by_position": largest_by_range(largest, ranges)}
            stats_by_name[f"{site}.{layer}"] = (
                _rounded(stats)
                | {name: [_round(value) for value in values] for name, values in lists.items()}
                | {"non_finite": int(folded["non_finite"])}
            )
    return stats_by_name


def share_of_zeros(rows: np.ndarray) -> float:
    """Of stored values. Counts integers, which is the fastest; a shift leaves out the sign of floats."""
    raw = rows if rows.dtype.kind == "i" else rows.view(f"u{rows.dtype.itemsize}") << 1
    return 1 - np.count_nonzero(raw) / raw.size if raw.size else 0.0


def positions_of(plan: ShardPlan) -> np.ndarray | None:
    """The position of the token of each row; None for pools."""
    if plan.pooled:
        return None
    selected = row_positions(plan) or [np.arange(len(sample.token_ids)) for sample in plan.samples]
    return np.concatenate([np.empty(0, np.int64), *selected])


def fold_stats(parts: list[tuple[int, dict[str, dict[str, Any]]]]) -> dict[str, dict[str, Any]]:
    """The statistics of several shards together, from (rows, statistics) of each shard in order."""
    names = next((list(stats) for _, stats in parts), [])
    return {name: _fold([(rows, stats[name]) for rows, stats in parts]) for name in names}


def _fold(parts: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    count = max(sum(rows for rows, _ in parts), 1)

    def mean(key: str) -> float:
        return sum(rows * shard[key] for rows, shard in parts) / count

    stats = {"mean": mean("mean"), "norm": mean("norm"), "max_abs": max(shard["max_abs"] for _, shard in parts)}
    if "int8_error" in parts[0][1]:
        squares = sum(rows * shard["mean_square"] for rows, shard in parts)
        error = sum(rows * shard["mean_square"] * shard["int8_error"] ** 2 for rows, shard in parts)
        stats["mean_square"] = squares / count
        stats["int8_error"] = _ratio(error, squares)
    if "l0" in parts[0][1]:
        active = [rows * shard["l0"] for rows, shard in parts]
        cut = math.sumprod(active, [shard["cut"] for _, shard in parts]) / (sum(active) or 1)
        stats |= {"l0": mean("l0"), "cut": cut, "cut_rows": mean("cut_rows")}
    by_rank = zip(*(shard["norm_quantiles"] for _, shard in parts), strict=True)
    by_position = zip_longest(*(shard["max_abs_by_position"] for _, shard in parts), fillvalue=0.0)
    weights = [rows / count for rows, _ in parts]
    return _rounded(stats) | {
        "non_finite": sum(shard["non_finite"] for _, shard in parts),
        "zeros": _round(math.sumprod(weights, [shard["zeros"] for _, shard in parts])),
        "norm_quantiles": [_round(math.sumprod(weights, norms)) for norms in by_rank],
        "max_abs_by_position": [max(largest) for largest in by_position],
    }


def _ratio(squared_error: float, squares: float) -> float:
    return (squared_error / squares) ** 0.5 if squares else 0.0


def _rounded(stats: dict[str, float]) -> dict[str, float]:
    """Rounds to the seven digits that sums of fp32 justify."""
    return {name: _round(value) for name, value in stats.items()}


def _round(value: float) -> float:
    return float(f"{value:.7g}")
