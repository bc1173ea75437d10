"""A shard while it is computed: where the rows of each batch go, and what is known of their values."""

from dataclasses import dataclass

import numpy as np

from ..failures import Failure
from ..model.device_output import HostBatch
from ..model.model import Model
from .plan import Batch, ShardPlan, plan_batches


@dataclass(eq=False)
class ShardBuffer:
    """The rows of the batches that are `done` are final; the others may be anything."""

    plan: ShardPlan
    batches: list[Batch]
    rows: dict[str, np.ndarray]  # site -> [L, R, D] as stored
    scale: dict[str, np.ndarray]  # site -> [L, R] fp32, for int8 alone
    sums: dict[str, np.ndarray]  # site -> [batches, L, K] fp64, columns as the model names them
    done: np.ndarray  # bool [batches]
    saved: np.ndarray  # bool [batches]: in a partial already

    def begins(self, batch: Batch) -> list[int]:
        """Where the rows of each sample of the batch begin."""
        return [int(self.plan.row_offsets[sample]) for sample in batch.rows]


def start_shard(plan: ShardPlan, model: Model) -> ShardBuffer:
    batches = plan_batches([len(s.token_ids) for s in plan.samples], model.reader.max_length)
    rows, scale = model.empty(plan.rows)
    sums = (len(batches), len(model.layers), len(model.stats_columns))
    return ShardBuffer(
        plan,
        batches,
        rows,
        scale,
        {site: np.zeros(sums) for site in model.sites},
        done=np.zeros(len(batches), bool),
        saved=np.zeros(len(batches), bool),
    )


def put_batch(shard: ShardBuffer, number: int, host: HostBatch, model: Model, where: str) -> None:
    """Copies the rows of a batch to their places; its padding stays behind.

    Raises Failure("stream") when a value is not finite; `where` is the stream's object.
    """
    batch = shard.batches[number]
    if found := host.non_finite():
        site, layer, row, count = found
        raise Failure(
            "stream",
            f"Failed to extract {where}: {site}.{layer} has {count} rows that are not finite, the first of them in "
            f"sample {shard.plan.samples[batch.rows[row]].index}; {_REMEDIES[model.spec.dtype == 'fp16']}",
        )
    host.store(shard.rows, shard.scale, shard.begins(batch))
    for site, sums in host.stats.items():
        shard.sums[site][number] = sums
    shard.done[number] = True


_REMEDIES = {
    False: "check the model's weights, or ask for compute_dtype fp32",
    True: "fp16 ends at 65504: ask for dtype bf16 or fp32",
}


def shard_stats(shard: ShardBuffer, model: Model) -> dict[str, dict[str, float]]:
    """What is known of the values of each `{site}.{layer}`, batches added up in their order.

    mean: of all values; norm: the mean L2 norm of a row; max_abs: the largest magnitude. int8 adds mean_square, of the
    values before rounding, and int8_error, the L2 norm of all rounding errors over that of all values.
    """
    values = max(shard.plan.rows, 1) * model.config.d_model
    told = {}
    for site, sums in shard.sums.items():
        for position, layer in enumerate(model.layers):
            by_batch = dict(zip(model.stats_columns, sums[:, position].T, strict=True))
            folded = {name: float(sum(column)) for name, column in by_batch.items()}
            stats = {
                "mean": folded["sum"] / values,
                "norm": folded["norm_sum"] / max(shard.plan.rows, 1),
                "max_abs": float(by_batch["max_abs"].max(initial=0.0)),
            }
            if "squares" in folded:
                stats["mean_square"] = folded["squares"] / values
                stats["int8_error"] = _ratio(folded["squared_error"], folded["squares"])
            told[f"{site}.{layer}"] = _rounded(stats) | {"non_finite": int(folded["non_finite"])}
    return told


def fold_stats(parts: list[tuple[int, dict[str, dict[str, float]]]]) -> dict[str, dict[str, float]]:
    """The same of several shards, from (rows, statistics) of each, in their order."""
    names = next((list(stats) for _, stats in parts), [])
    return {name: _fold([(rows, stats[name]) for rows, stats in parts]) for name in names}


def _fold(parts: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    count = max(sum(rows for rows, _ in parts), 1)
    stats = {
        "mean": sum(rows * of["mean"] for rows, of in parts) / count,
        "norm": sum(rows * of["norm"] for rows, of in parts) / count,
        "max_abs": max(of["max_abs"] for _, of in parts),
    }
    if "int8_error" in parts[0][1]:
        squares = sum(rows * of["mean_square"] for rows, of in parts)
        error = sum(rows * of["mean_square"] * of["int8_error"] ** 2 for rows, of in parts)
        stats["mean_square"] = squares / count
        stats["int8_error"] = _ratio(error, squares)
    return _rounded(stats) | {"non_finite": sum(of["non_finite"] for _, of in parts)}


def _ratio(squared_error: float, squares: float) -> float:
    return (squared_error / squares) ** 0.5 if squares else 0.0


def _rounded(stats: dict[str, float]) -> dict[str, float]:
    """To the seven digits that sums of fp32 are worth."""
    return {name: float(f"{value:.7g}") for name, value in stats.items()}
