"""The computed batches of an unfinished shard, kept when a VM is taken away, for whoever goes on with the stream.

A partial holds the first batches of the shard's plan, so what comes of it is the same bytes as without it. It is only
ever a saving of time: one that does not fit, or cannot be read, is passed over.
"""

import logging
import os

import numpy as np
from safetensors import SafetensorError, safe_open

from ..failures import Failure
from ..model.loaded import Model
from ..names import partial_name, partial_prefix
from ..objects import Bucket, ObjectInfo
from .shard import ShardInProgress
from .write import write_safetensors
from ..work import Work, disagreement, shard_identity

log = logging.getLogger(__name__)


def save_partial(shard: ShardInProgress, work: Work, model: Model, bucket: Bucket, folder: str) -> None:
    """Stores the batches done so far. Safe beside a computation that goes on: finished rows do not change."""
    done = shard.batches_done
    if done == 0:
        return
    samples = _samples(shard, done)
    tensors = {
        f"resid_post.{layer}": np.concatenate([rows[shard.offsets[s] : shard.offsets[s + 1]] for s in samples])
        for layer, rows in shard.layers.items()
    }
    metadata = shard_identity(work, shard.plan, model.fingerprint) | {"batches": str(done)}
    path = os.path.join(folder, "partial")
    write_safetensors(path, tensors, metadata)
    name = partial_name(work.run, work.stream, shard.plan.number, work.epoch)
    bucket.create(name, path, metadata | {"run": work.run, "epoch": str(work.epoch)}, "application/octet-stream")
    log.info("Saved %d of %d batches of shard %d in %s", done, len(shard.batches), shard.plan.number, name)


class Partials:
    """What earlier holders of this stream left."""

    def __init__(self, work: Work, model: Model, bucket: Bucket, folder: str):
        self._work, self._model, self._bucket, self._folder = work, model, bucket, folder
        self._found = bucket.list(partial_prefix(work.run, work.stream, 0).removesuffix("shard_0000."))

    def restore(self, shard: ShardInProgress) -> None:
        """Fills the shard with the batches of the partial that has most of them, if there is one that fits."""
        prefix = partial_prefix(self._work.run, self._work.stream, shard.plan.number)
        identity = shard_identity(self._work, shard.plan, self._model.fingerprint)
        fitting = [
            info for info in self._found if info.name.startswith(prefix) and not disagreement(identity, info.metadata)
        ]
        for info in sorted(fitting, key=_batches, reverse=True):
            if 0 < _batches(info) <= len(shard.batches) and self._load(shard, info):
                shard.batches_done = _batches(info)
                log.info(
                    "Going on with %d of %d batches of shard %d from %s",
                    shard.batches_done,
                    len(shard.batches),
                    shard.plan.number,
                    info.name,
                )
                return

    def _load(self, shard: ShardInProgress, info: ObjectInfo) -> bool:
        path = os.path.join(self._folder, "partial")
        samples = _samples(shard, _batches(info))
        try:
            self._bucket.download(info.name, path, info.generation)
            with safe_open(path, framework="numpy") as file:
                for layer, rows in shard.layers.items():
                    saved = file.get_tensor(f"resid_post.{layer}")
                    lengths = [shard.offsets[s + 1] - shard.offsets[s] for s in samples]
                    if saved.dtype != rows.dtype or saved.shape != (sum(lengths), rows.shape[1]):
                        raise ValueError(f"resid_post.{layer} is {saved.dtype} {saved.shape}")
                    for s, part in zip(samples, np.split(saved, np.cumsum(lengths)[:-1]), strict=True):
                        rows[shard.offsets[s] : shard.offsets[s + 1]] = part
            return True
        except (OSError, SafetensorError, ValueError, Failure) as error:
            log.warning("Failed to use %s: %s; computing that shard from its beginning", info.name, error)
            return False
        finally:
            if os.path.exists(path):
                os.unlink(path)


def _samples(shard: ShardInProgress, batches: int) -> list[int]:
    return [sample for batch in shard.batches[:batches] for sample in batch.rows]


def _batches(info: ObjectInfo) -> int:
    text = info.metadata.get("batches", "")
    return int(text) if text.isdigit() else 0
