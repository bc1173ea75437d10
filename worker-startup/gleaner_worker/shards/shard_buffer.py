"""A shard while it is computed: the vectors of its samples, and the sums for its statistics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..failures import Failure
from ..model.model import Model
from ..model.program.device_output import HostRow
from .plan import ShardPlan


@dataclass(eq=False)
class ShardBuffer:
    """The vectors of a sample are final when its `done` is true; other vectors have arbitrary values."""

    plan: ShardPlan
    rows: dict[str, np.ndarray]  # site -> [L, R, D] as stored
    scale: dict[str, np.ndarray]  # site -> [L, R] fp32, for int8 alone
    row_stats: dict[str, np.ndarray]  # site -> [L, R, 2] fp32, the L2 norm and the largest magnitude of each vector
    sums: dict[str, np.ndarray]  # site -> [L, samples, K] fp64, columns as the model names them
    moments: dict[str, np.ndarray]  # "SITE.sum" and "SITE.squares" -> [L, samples, D] fp32
    done: np.ndarray  # bool [samples]
    saved: np.ndarray  # bool [samples]: in a partial already


def start_shard(plan: ShardPlan, model: Model) -> ShardBuffer:
    """Allocates the buffer of a planned shard, without any finished sample."""
    count = len(plan.samples)
    rows, scale, moments = model.empty(plan.rows, count)
    capture = model.capture
    return ShardBuffer(
        plan,
        rows,
        scale,
        {name: np.zeros((*rows[name].shape[:2], 2), np.float32) for name in capture.with_stats},
        {
            name: np.zeros((len(capture.layers_of(name)), count, len(capture.stats_columns(name))))
            for name in capture.with_stats
        },
        moments,
        done=np.zeros(count, bool),
        saved=np.zeros(count, bool),
    )


def put_samples(shard: ShardBuffer, positions: Sequence[int], host: HostRow, samples: Sequence[int]) -> None:
    """Copies the vectors and sums of these samples of a computed row to these samples of the shard, in order."""
    host.store(samples, shard.rows, shard.scale, shard.row_stats, shard.plan.row_offsets[positions])
    host.store_moments(samples, shard.moments, np.asarray(positions))
    for site, sums in host.sums(samples).items():
        shard.sums[site][:, positions] = sums
    shard.done[positions] = True


def check_finite(host: HostRow, sample_indices: list[int], model: Model, where: str) -> None:
    """Raises Failure("stream") when a value of the row is not finite; `where` is the stream's object."""
    if origin := host.non_finite():
        site, layer, b, count = origin
        raise Failure(
            "stream",
            f"Failed to extract {where}: {site}.{layer} has {count} vectors that are not finite, the first of them in "
            f"sample {sample_indices[b]}; {_USE_WIDER if model.spec.dtype == 'fp16' else _CHECK_WEIGHTS}",
        )


_CHECK_WEIGHTS = "check the model's weights, or set compute_dtype to fp32"
_USE_WIDER = "fp16 holds values up to 65504: set dtype to bf16 or fp32"
