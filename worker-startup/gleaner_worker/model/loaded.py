"""A model ready to run: its parameters on the device, its tokenizer, and the layers that a spec asks for."""

from dataclasses import dataclass, field

import jax
import numpy as np

from . import decoder as qwen2
from .folder import find_model, fingerprint, open_reader
from ..objects import Bucket
from ..shards.plan import Batch, ShardPlan
from .config import Qwen2Config
from ..records.samples import Reader
from ..spec import Spec
from .weights import DTYPES, load_params


@dataclass(frozen=True, eq=False)
class Model:
    name: str
    fingerprint: str
    config: Qwen2Config
    layers: tuple[int, ...]
    reader: Reader
    params: dict
    dtype: str
    compiled: set[tuple[int, int]] = field(default_factory=set)  # batch shapes seen so far

    @property
    def bytes_per_token(self) -> int:
        return len(self.layers) * self.config.d_model * DTYPES[self.dtype].itemsize


def load_model(spec: Spec, home: str, bucket: Bucket) -> Model:
    """Raises Failure("model") when anything about the model, its tokenizer or the chosen layers does not fit."""
    folder = find_model(spec.model, home, bucket)
    config, layers, reader = open_reader(spec, folder)
    params = load_params(folder, config, layers[-1] + 1, spec.compute_dtype, spec.model)
    return Model(spec.model, fingerprint(folder), config, layers, reader, jax.device_put(params), spec.compute_dtype)


def run_batch(model: Model, plan: ShardPlan, batch: Batch) -> jax.Array:
    """Starts one batch and returns at once: [layers, height, width, d_model] in the model's dtype, padding included."""
    token_ids = np.zeros((batch.height, batch.width), np.int32)
    for row, sample in enumerate(batch.rows):
        ids = plan.samples[sample].token_ids
        token_ids[row, : len(ids)] = ids
    # On a TPU the default precision of an fp32 product is bf16.
    with jax.default_matmul_precision("highest" if model.dtype == "fp32" else "default"):
        return qwen2.resid_post(model.params, token_ids, model.config, model.layers)
