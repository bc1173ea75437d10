"""A shard while it is computed: the rows of its batches, and the sums for its statistics."""

from dataclasses import dataclass

import numpy as np

from ..batching import Batch, plan_batches
from ..failures import Failure
from ..model.device_output import HostBatch
from ..model.model import Model
from .plan import ShardPlan


@dataclass(eq=False)
class ShardBuffer:
    """The rows of the batches that are `done` are final; other rows have arbitrary values."""

    plan: ShardPlan
    batches: list[Batch]
    rows: dict[str, np.ndarray]  # site -> [L, R, D] as stored
    scale: dict[str, np.ndarray]  # site -> [L, R] fp32, for int8 alone
    sums: dict[str, np.ndarray]  # site -> [batches, L, K] fp64, columns as the model names them
    done: np.ndarray  # bool [batches]
    saved: np.ndarray  # bool [batches]: in a partial already

    def begins(self, batch: Batch) -> list[int]:
        """The first row of each sample of the batch."""
        return [int(self.plan.row_offsets[sample]) for sample in batch.rows]


def start_shard(plan: ShardPlan, model: Model) -> ShardBuffer:
    batches = plan_batches([len(s.token_ids) for s in plan.samples], model.max_length)
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
    """Copies the rows of a batch to their places, without the padding.

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
