"""Statistics of a shard's values: mean, norm, largest magnitude, and for int8 the error of rounding."""

import math

from ..model.model import Model
from .shard_buffer import ShardBuffer


def shard_stats(shard: ShardBuffer, model: Model) -> dict[str, dict[str, float]]:
    """The statistics of each `{site}.{layer}`. Sums over samples are exact, so their order changes no bit.

    mean: of all values; norm: the mean L2 norm of a row; max_abs: the largest magnitude. int8 adds mean_square, of the
    values before rounding, and int8_error, the L2 norm of all rounding errors over that of all values.
    """
    stats_by_name, capture = {}, model.capture
    for site, sums in shard.sums.items():
        values = max(shard.plan.rows, 1) * capture.width(site)
        for position, layer in enumerate(capture.layers_of(site)):
            by_sample = dict(zip(capture.stats_columns(site), sums[:, position].T, strict=True))
            folded = {name: math.fsum(column) for name, column in by_sample.items()}
            stats = {
                "mean": folded["sum"] / values,
                "norm": folded["norm_sum"] / max(shard.plan.rows, 1),
                "max_abs": float(by_sample["max_abs"].max(initial=0.0)),
            }
            if "squares" in folded:
                stats["mean_square"] = folded["squares"] / values
                stats["int8_error"] = _ratio(folded["squared_error"], folded["squares"])
            stats_by_name[f"{site}.{layer}"] = _rounded(stats) | {"non_finite": int(folded["non_finite"])}
    return stats_by_name


def fold_stats(parts: list[tuple[int, dict[str, dict[str, float]]]]) -> dict[str, dict[str, float]]:
    """The statistics of several shards together, from (rows, statistics) of each shard in order."""
    names = next((list(stats) for _, stats in parts), [])
    return {name: _fold([(rows, stats[name]) for rows, stats in parts]) for name in names}


def _fold(parts: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    count = max(sum(rows for rows, _ in parts), 1)
    stats = {
        "mean": sum(rows * shard["mean"] for rows, shard in parts) / count,
        "norm": sum(rows * shard["norm"] for rows, shard in parts) / count,
        "max_abs": max(shard["max_abs"] for _, shard in parts),
    }
    if "int8_error" in parts[0][1]:
        squares = sum(rows * shard["mean_square"] for rows, shard in parts)
        error = sum(rows * shard["mean_square"] * shard["int8_error"] ** 2 for rows, shard in parts)
        stats["mean_square"] = squares / count
        stats["int8_error"] = _ratio(error, squares)
    return _rounded(stats) | {"non_finite": sum(shard["non_finite"] for _, shard in parts)}


def _ratio(squared_error: float, squares: float) -> float:
    return (squared_error / squares) ** 0.5 if squares else 0.0


def _rounded(stats: dict[str, float]) -> dict[str, float]:
    """Rounds to the seven digits that sums of fp32 justify."""
    return {name: float(f"{value:.7g}") for name, value in stats.items()}
