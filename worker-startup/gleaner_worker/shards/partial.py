"""Partials: the computed samples of an unfinished shard, saved by a preempted VM for the next worker of the stream.

The plan decides which row holds a sample, so the shard has the same bytes with and without a partial. Partials only
save time. A worker ignores a partial that contradicts the plan, belongs to another program or mesh, or is unreadable.
A shard is saved as several partials of a bounded size in parallel. A slow network may deliver only some of them, and
each is useful alone.
"""

import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from safetensors import SafetensorError, safe_open

from ..architecture.sites import Capture
from ..failures import Failure
from ..model.model import Model
from ..names import partial_name, partial_prefix, partials_folder
from ..spec.work import Work
from ..storage.objects import Bucket, ObjectInfo
from .encode import encode_tensors
from .shard_buffer import ShardBuffer
from .shard_identity import disagreement, shard_identity

log = logging.getLogger(__name__)

_PART_BYTES = 64 * 1024 * 1024  # unless one sample is larger
_PARALLEL = 4


class Partials:
    """Loads the partials of earlier workers of this stream, and saves those of this worker."""

    def __init__(self, work: Work, model: Model, bucket: Bucket, folder: str):
        self._work, self._model, self._bucket, self._folder = work, model, bucket, folder
        self._objects = bucket.list(partials_folder(work.run, work.stream))

    def restore(self, shard: ShardBuffer) -> None:
        """Fills the shard with the samples of every partial that fits its plan and program."""
        prefix = partial_prefix(self._work.run, self._work.stream, shard.plan.number)
        identity = self._identity(shard)
        fitting = [
            info for info in self._objects if info.name.startswith(prefix) and not disagreement(identity, info.metadata)
        ]
        if fitting:
            with ThreadPoolExecutor(_PARALLEL, "partial") as pool:
                list(pool.map(lambda info: self._load(shard, info), fitting))
            log.info("Resuming shard %d with %d of %d samples", shard.plan.number, shard.done.sum(), len(shard.done))

    def save(self, shards: Iterable[ShardBuffer]) -> None:
        """Stores the finished samples. The computation may continue, because finished samples do not change."""
        parts = [(shard, part) for shard in shards for part in _parts_to_save(shard, self._model.capture)]
        if parts:
            with ThreadPoolExecutor(_PARALLEL, "partial") as pool:
                list(pool.map(lambda part: self._save(*part), parts))

    def _identity(self, shard: ShardBuffer) -> dict[str, str]:
        identity = shard_identity(self._work, shard.plan, self._model.fingerprint)
        return identity | {"program": self._model.program_version}

    def _save(self, shard: ShardBuffer, part: np.ndarray) -> None:
        name = partial_name(
            self._work.run, self._work.stream, shard.plan.number, self._work.epoch, int(part[0]), int(part[-1])
        )
        metadata, tensors = self._identity(shard), {"samples": part}
        for key, (array, places) in _stored(shard, part).items():
            tensors[key] = _raw(array).take(places, axis=1).view(array.dtype)
        attempt = {"run": self._work.run, "epoch": str(self._work.epoch)}
        try:
            self._bucket.create(name, encode_tensors(tensors, metadata), metadata | attempt, "application/octet-stream")
        except Failure as error:
            log.warning("%s; the next worker computes these samples again", error)
            return
        shard.saved[part] = True
        log.info("Saved %d of %d samples of shard %d in %s", len(part), len(shard.done), shard.plan.number, name)

    def _load(self, shard: ShardBuffer, info: ObjectInfo) -> None:
        path = os.path.join(self._folder, info.name.rpartition("/")[2])
        try:
            if info.size_bytes > self._limit(shard):
                raise ValueError(f"it has {info.size_bytes} bytes, more than its shard can fill")
            self._bucket.download(info.name, path, info.generation)
            with safe_open(path, framework="numpy") as file:
                self._put(shard, {name: file.get_tensor(name) for name in file.keys()})
        except (OSError, SafetensorError, ValueError, KeyError, Failure) as error:
            log.warning("Failed to use %s: %s; computing its samples again", info.name, error)
        finally:
            if os.path.exists(path):
                os.unlink(path)

    def _limit(self, shard: ShardBuffer) -> int:
        """An upper bound for the size of a partial of the shard, in bytes."""
        arrays = [array for array, _ in _stored(shard, np.empty(0, np.int64)).values()]
        return sum(array.nbytes for array in arrays) + 8 * len(shard.done) + (1 << 20)

    def _put(self, shard: ShardBuffer, tensors: dict[str, np.ndarray]) -> None:
        """Copies the samples into the shard. Raises ValueError or KeyError before any copy if a tensor does not fit."""
        part, count = tensors["samples"], len(shard.done)
        if part.dtype != np.int64 or part.ndim != 1 or (np.diff(part, prepend=-1, append=count) < 1).any():
            raise ValueError("its samples are not ascending positions of the shard")
        stored = _stored(shard, part)
        for name, (array, places) in stored.items():
            form = (len(array), len(places), *array.shape[2:])
            if tensors[name].shape != form or tensors[name].dtype != array.dtype:
                raise ValueError(f"its {name} is {tensors[name].dtype} {list(tensors[name].shape)}")
        for name, (array, places) in stored.items():
            _raw(array)[:, places] = _raw(tensors[name])
        for done in (shard.done, shard.saved):
            done[part] = True


def _parts_to_save(shard: ShardBuffer, capture: Capture) -> list[np.ndarray]:
    """The positions of the samples that are done and not saved yet, int64, in parts of at most _PART_BYTES."""
    due = np.flatnonzero(shard.done & ~shard.saved)
    ends = np.cumsum(np.diff(shard.plan.row_offsets)[due] * capture.row_bytes + capture.sample_bytes)
    parts = []
    begin = 0
    while begin < len(due):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _PART_BYTES, "right")))
        parts.append(due[begin:end])
        begin = end
    return parts


def _stored(shard: ShardBuffer, part: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The arrays of a partial by name, and the places of the samples `part` in their second axis."""
    spans = [np.arange(*shard.plan.row_offsets[sample : sample + 2]) for sample in part]
    vectors = np.concatenate([np.empty(0, np.int64), *spans])
    kinds = {"rows": vectors, "scale": vectors, "row_stats": vectors, "moments": part, "sums": part}
    return {
        f"{kind}.{name}": (array, places)
        for kind, places in kinds.items()
        for name, array in getattr(shard, kind).items()
    }


def _raw(array: np.ndarray) -> np.ndarray:
    """A view of the array as unsigned integers, because numpy copies bf16 one value at a time."""
    return array.view(f"u{array.dtype.itemsize}")
