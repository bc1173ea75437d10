"""Partials: the computed batches of an unfinished shard, saved by a preempted VM for the next worker of the stream.

A partial holds consecutive batches of the shard's plan, so the shard has the same bytes with and without it. Partials
only save time: a worker ignores those that do not fit or cannot be read. A shard is saved as several partials of a
bounded size at once, because a slow network may deliver only some of them, and each is useful alone.
"""

import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from safetensors import SafetensorError, safe_open

from gleaner_reader.header import is_number

from ..failures import Failure
from ..model.model import Model
from ..names import partial_name, partial_prefix
from ..objects import Bucket, ObjectInfo
from ..work import Work
from .encode import encode_tensors
from .shard_buffer import ShardBuffer
from .shard_identity import disagreement, shard_identity

log = logging.getLogger(__name__)

_PART_BYTES = 64 * 1024 * 1024  # unless one batch is larger
_PARALLEL = 4


class Partials:
    """The partials of earlier workers of this stream, and those of this worker."""

    def __init__(self, work: Work, model: Model, bucket: Bucket, folder: str):
        self._work, self._model, self._bucket, self._folder = work, model, bucket, folder
        self._found = bucket.list(partial_prefix(work.run, work.stream, 0).removesuffix("shard_0000."))

    def restore(self, shard: ShardBuffer) -> None:
        """Fills the shard with every batch of a fitting partial."""
        prefix = partial_prefix(self._work.run, self._work.stream, shard.plan.number)
        identity = self._identity(shard)
        fitting = [
            info for info in self._found if info.name.startswith(prefix) and not disagreement(identity, info.metadata)
        ]
        chosen, wanted = [], ~shard.done
        for info in sorted(fitting, key=lambda info: len(_run_of(info)), reverse=True):
            run = _run_of(info)
            if run and run[-1] < len(shard.batches) and wanted[run.start : run.stop].any():
                chosen.append(info)
                wanted[run.start : run.stop] = False
        if chosen:
            with ThreadPoolExecutor(_PARALLEL, "partial") as pool:
                list(pool.map(lambda info: self._load(shard, info), chosen))
            log.info(
                "Going on with %d of %d batches of shard %d", shard.done.sum(), len(shard.batches), shard.plan.number
            )

    def save(self, shards: Iterable[ShardBuffer]) -> None:
        """Stores the finished batches. A computation may go on: finished rows do not change."""
        parts = [(shard, part) for shard in shards for part in _runs_to_save(shard, self._model.row_bytes)]
        if parts:
            with ThreadPoolExecutor(_PARALLEL, "partial") as pool:
                list(pool.map(lambda part: self._save(*part), parts))

    def _identity(self, shard: ShardBuffer) -> dict[str, str]:
        return shard_identity(self._work, shard.plan, self._model.fingerprint)

    def _save(self, shard: ShardBuffer, part: range) -> None:
        name = partial_name(self._work.run, self._work.stream, shard.plan.number, self._work.epoch, part[0], part[-1])
        metadata = self._identity(shard) | {"first_batch": str(part[0]), "last_batch": str(part[-1])}
        spans = _spans(shard, part)
        tensors = {f"rows.{site}": _gather(rows, spans) for site, rows in shard.rows.items()}
        tensors |= {f"scale.{site}": _gather(scale, spans) for site, scale in shard.scale.items()}
        tensors |= {f"sums.{site}": sums[part.start : part.stop] for site, sums in shard.sums.items()}
        made = {"run": self._work.run, "epoch": str(self._work.epoch)}
        try:
            self._bucket.create(name, encode_tensors(tensors, metadata), metadata | made, "application/octet-stream")
        except Failure as error:
            log.warning("%s; those batches will be computed again", error)
            return
        shard.saved[part.start : part.stop] = True
        log.info(
            "Saved batches %d to %d of %d of shard %d in %s",
            part[0],
            part[-1],
            len(shard.batches),
            shard.plan.number,
            name,
        )

    def _load(self, shard: ShardBuffer, info: ObjectInfo) -> None:
        path = os.path.join(self._folder, info.name.rpartition("/")[2])
        try:
            if info.size_bytes > self._limit(shard, _run_of(info)):
                raise ValueError(f"it has {info.size_bytes} bytes")
            self._bucket.download(info.name, path, info.generation)
            with safe_open(path, framework="numpy") as file:
                self._put(shard, _run_of(info), {name: file.get_tensor(name) for name in file.keys()})
        except (OSError, SafetensorError, ValueError, KeyError, Failure) as error:
            log.warning("Failed to use %s: %s; computing those batches again", info.name, error)
        finally:
            if os.path.exists(path):
                os.unlink(path)

    def _limit(self, shard: ShardBuffer, part: range) -> int:
        """A size that no partial of these batches reaches."""
        sums = sum(array[part.start : part.stop].nbytes for array in shard.sums.values())
        return _row_count(shard, part) * self._model.row_bytes + sums + (1 << 20)

    def _put(self, shard: ShardBuffer, part: range, tensors: dict[str, np.ndarray]) -> None:
        """Raises ValueError or KeyError when a tensor does not fit; no batch counts as done then."""
        spans, rows = _spans(shard, part), _row_count(shard, part)
        layers = len(self._model.layers)
        places = {f"rows.{site}": (array, rows) for site, array in shard.rows.items()}
        places |= {f"scale.{site}": (array, rows) for site, array in shard.scale.items()}
        places |= {f"sums.{site}": (array, None) for site, array in shard.sums.items()}
        for name, (array, count) in places.items():
            shape = (len(part), *array.shape[1:]) if count is None else (layers, count, *array.shape[2:])
            if tensors[name].shape != shape or tensors[name].dtype != array.dtype:
                raise ValueError(f"its {name} is {tensors[name].dtype} {list(tensors[name].shape)}")
        for name, (array, count) in places.items():
            if count is None:
                array[part.start : part.stop] = tensors[name]
                continue
            begin = 0
            for span in spans:
                end = begin + span.stop - span.start
                _raw(array)[:, span] = _raw(tensors[name])[:, begin:end]
                begin = end
        for done in (shard.done, shard.saved):
            done[part.start : part.stop] = True


def _runs_to_save(shard: ShardBuffer, row_bytes: int) -> list[range]:
    """Consecutive batches that are done and not saved yet, in runs of at most _PART_BYTES."""
    runs: list[range] = []
    size = 0
    for number, is_due in enumerate(shard.done & ~shard.saved):
        if not is_due:
            continue
        more = row_bytes * _row_count(shard, range(number, number + 1))
        if runs and runs[-1].stop == number and size + more <= _PART_BYTES:
            runs[-1], size = range(runs[-1].start, number + 1), size + more
        else:
            runs.append(range(number, number + 1))
            size = more
    return runs


def _spans(shard: ShardBuffer, part: range) -> list[slice]:
    """The rows of each sample of these batches, in the order of the batches."""
    offsets = shard.plan.row_offsets
    return [slice(int(offsets[s]), int(offsets[s + 1])) for number in part for s in shard.batches[number].rows]


def _row_count(shard: ShardBuffer, part: range) -> int:
    return sum(span.stop - span.start for span in _spans(shard, part))


def _gather(rows: np.ndarray, spans: list[slice]) -> np.ndarray:
    """[L, R, ...] -> [L, rows of the spans, ...]."""
    raw = _raw(rows)
    return np.concatenate([raw[:, span] for span in spans], axis=1).view(rows.dtype)


def _raw(array: np.ndarray) -> np.ndarray:
    """The array as integers, because numpy copies bf16 one value at a time."""
    return array.view(f"u{array.dtype.itemsize}")


def _run_of(info: ObjectInfo) -> range:
    """The batches of a partial by its metadata; none for malformed metadata."""
    first, last = (info.metadata.get(key, "") for key in ("first_batch", "last_batch"))
    return range(int(first), int(last) + 1) if is_number(first, 9) and is_number(last, 9) else range(0)
