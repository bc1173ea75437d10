"""Partials: the computed samples of an unfinished shard, saved by a preempted VM for the next worker of the stream.

The plan decides which row holds a sample, so the shard has the same bytes with and without a partial. Partials only
save time: a worker ignores those that do not fit, those of another program or mesh, and those that cannot be read. A
shard is saved as several partials of a bounded size at once, because a slow network may deliver only some of them, and
each is useful alone.
"""

import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from safetensors import SafetensorError, safe_open

from ..failures import Failure
from ..model.model import Model
from ..names import partial_name, partial_prefix
from ..objects import Bucket, ObjectInfo
from ..work import Work
from .encode import encode_tensors
from .shard_buffer import ShardBuffer
from .shard_identity import disagreement, shard_identity

log = logging.getLogger(__name__)

_PART_BYTES = 64 * 1024 * 1024  # unless one sample is larger
_PARALLEL = 4


class Partials:
    """The partials of earlier workers of this stream, and those of this worker."""

    def __init__(self, work: Work, model: Model, bucket: Bucket, folder: str):
        self._work, self._model, self._bucket, self._folder = work, model, bucket, folder
        self._found = bucket.list(partial_prefix(work.run, work.stream, 0).removesuffix("shard_0000."))

    def restore(self, shard: ShardBuffer) -> None:
        """Fills the shard with every sample of a fitting partial."""
        prefix = partial_prefix(self._work.run, self._work.stream, shard.plan.number)
        identity = self._identity(shard)
        fitting = [
            info for info in self._found if info.name.startswith(prefix) and not disagreement(identity, info.metadata)
        ]
        if fitting:
            with ThreadPoolExecutor(_PARALLEL, "partial") as pool:
                list(pool.map(lambda info: self._load(shard, info), fitting))
            log.info("Going on with %d of %d samples of shard %d", shard.done.sum(), len(shard.done), shard.plan.number)

    def save(self, shards: Iterable[ShardBuffer]) -> None:
        """Stores the finished samples. A computation may go on: finished samples do not change."""
        parts = [(shard, part) for shard in shards for part in _parts_to_save(shard, self._model.row_bytes)]
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
        metadata = self._identity(shard)
        spans = _spans(shard, part)
        tensors = {"samples": part} | {f"rows.{site}": _gather(rows, spans) for site, rows in shard.rows.items()}
        tensors |= {f"scale.{site}": _gather(scale, spans) for site, scale in shard.scale.items()}
        tensors |= {f"sums.{site}": sums[part] for site, sums in shard.sums.items()}
        made = {"run": self._work.run, "epoch": str(self._work.epoch)}
        try:
            self._bucket.create(name, encode_tensors(tensors, metadata), metadata | made, "application/octet-stream")
        except Failure as error:
            log.warning("%s; those samples will be computed again", error)
            return
        shard.saved[part] = True
        log.info("Saved %d of %d samples of shard %d in %s", len(part), len(shard.done), shard.plan.number, name)

    def _load(self, shard: ShardBuffer, info: ObjectInfo) -> None:
        path = os.path.join(self._folder, info.name.rpartition("/")[2])
        try:
            if info.size_bytes > self._limit(shard):
                raise ValueError(f"it has {info.size_bytes} bytes")
            self._bucket.download(info.name, path, info.generation)
            with safe_open(path, framework="numpy") as file:
                self._put(shard, {name: file.get_tensor(name) for name in file.keys()})
        except (OSError, SafetensorError, ValueError, KeyError, Failure) as error:
            log.warning("Failed to use %s: %s; computing those samples again", info.name, error)
        finally:
            if os.path.exists(path):
                os.unlink(path)

    def _limit(self, shard: ShardBuffer) -> int:
        """A size that no partial of the shard reaches."""
        sums = sum(array.nbytes for array in shard.sums.values())
        return shard.plan.rows * self._model.row_bytes + sums + 8 * len(shard.done) + (1 << 20)

    def _put(self, shard: ShardBuffer, tensors: dict[str, np.ndarray]) -> None:
        """Raises ValueError or KeyError when a tensor does not fit; no sample counts as done then."""
        part, count = tensors["samples"], len(shard.done)
        if part.dtype != np.int64 or part.ndim != 1 or (np.diff(part, prepend=-1, append=count) < 1).any():
            raise ValueError("its samples are not ascending positions of the shard")
        spans, layers = _spans(shard, part), len(self._model.layers)
        vectors = sum(span.stop - span.start for span in spans)
        places = {f"rows.{site}": (array, (layers, vectors)) for site, array in shard.rows.items()}
        places |= {f"scale.{site}": (array, (layers, vectors)) for site, array in shard.scale.items()}
        places |= {f"sums.{site}": (array, (len(part), layers)) for site, array in shard.sums.items()}
        for name, (array, first) in places.items():
            if tensors[name].shape != (*first, *array.shape[2:]) or tensors[name].dtype != array.dtype:
                raise ValueError(f"its {name} is {tensors[name].dtype} {list(tensors[name].shape)}")
        for name, (array, _) in places.items():
            if name.startswith("sums."):
                array[part] = tensors[name]
                continue
            begin = 0
            for span in spans:
                end = begin + span.stop - span.start
                _raw(array)[:, span] = _raw(tensors[name])[:, begin:end]
                begin = end
        for done in (shard.done, shard.saved):
            done[part] = True


def _parts_to_save(shard: ShardBuffer, row_bytes: int) -> list[np.ndarray]:
    """The positions of the samples that are done and not saved yet, int64, in parts of at most _PART_BYTES."""
    due = np.flatnonzero(shard.done & ~shard.saved)
    ends = np.cumsum(np.diff(shard.plan.row_offsets)[due] * row_bytes)
    parts = []
    begin = 0
    while begin < len(due):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _PART_BYTES, "right")))
        parts.append(due[begin:end])
        begin = end
    return parts


def _spans(shard: ShardBuffer, part: np.ndarray) -> list[slice]:
    """The vectors of each of these samples."""
    offsets = shard.plan.row_offsets
    return [slice(int(offsets[s]), int(offsets[s + 1])) for s in part]


def _gather(rows: np.ndarray, spans: list[slice]) -> np.ndarray:
    """[L, R, ...] -> [L, rows of the spans, ...]."""
    raw = _raw(rows)
    return np.concatenate([raw[:, span] for span in spans], axis=1).view(rows.dtype)


def _raw(array: np.ndarray) -> np.ndarray:
    """The array as integers, because numpy copies bf16 one value at a time."""
    return array.view(f"u{array.dtype.itemsize}")
