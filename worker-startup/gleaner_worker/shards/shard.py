"""A shard while it is computed."""

from dataclasses import dataclass, field

import numpy as np

from ..model.loaded import Model
from .plan import Batch, ShardPlan, plan_batches
from .write import sample_offsets
from ..model.weights import DTYPES


@dataclass
class ShardInProgress:
    """The rows of the first `batches_done` batches are final."""

    plan: ShardPlan
    batches: list[Batch]
    layers: dict[int, np.ndarray]  # layer -> [tokens, d_model]
    batches_done: int = 0
    offsets: np.ndarray = field(init=False)  # [S + 1]: where each sample's rows begin

    def __post_init__(self) -> None:
        self.offsets = sample_offsets(self.plan)


def start_shard(plan: ShardPlan, model: Model) -> ShardInProgress:
    batches = plan_batches([len(sample.token_ids) for sample in plan.samples], model.reader.max_length)
    rows = (plan.tokens, model.config.d_model)
    return ShardInProgress(plan, batches, {layer: np.empty(rows, DTYPES[model.dtype]) for layer in model.layers})
