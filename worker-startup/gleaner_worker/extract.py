"""One stream in, shards out: read, tokenise, plan, compute, gather, encode, upload, each beside the next.

Memory is bounded by a few shards, whatever the stream's length and their size.
"""

import os
import threading
from collections.abc import Generator, Iterator

import numpy as np

from .control import Control
from .disk import empty_folder
from .failures import Failure
from .model.device_output import InFlightBatch
from .model.model import Model
from .objects import Bucket
from .pipeline import Pipeline
from .records.samples import Reader, Reject, Sample, Window, count_samples, read_windows, tokenize_windows
from .records.stream import no_lines
from .shards.encode import encode_shard
from .shards.existing_shards import ExistingShards
from .shards.partial import Partials
from .shards.plan import Capacity, ShardPlan, plan_shards, shapes_of
from .shards.rejects import RejectsFile
from .shards.shard_buffer import ShardBuffer, put_batch, start_shard
from .shards.shard_identity import shard_identity
from .shards.shard_stats import shard_stats
from .shards.upload import EncodedShard, Uploader
from .work import Work

_UPLOADS = 4  # at once
_PLANNED = 4  # shards whose batch shapes are compiled ahead
_OPEN = 4  # shards that wait together for batches of one width, on several devices
_MOST_SHARDS = 2 + _UPLOADS  # in memory: one that is computed, one that is encoded, and those on their way
_MEMORY_SHARE = 0.5  # of this machine's, for shards

# A batch of a shard, by its number.
Part = tuple[ShardBuffer, int]
# What the devices compute at once, and what is awaited; a shard that has nothing left to compute is alone, without.
Running = tuple[list[Part], InFlightBatch] | tuple[ShardBuffer, None]


def extract(work: Work, model: Model, reader: Reader, bucket: Bucket, folder: str, control: Control) -> str:
    """Stores every shard of the stream that is not stored yet; returns "completed", "drained" or "preempted".

    bucket: checked with control.check_lease, so that nothing is written after the lease was lost.
    folder: scratch space on this machine's disk, emptied first. Raises Failure or LeaseLost.
    """
    stream_path = os.path.join(empty_folder(folder), "stream")
    _download(work, bucket, stream_path)
    control.samples_total = count_samples(stream_path, work.object, reader)
    if control.samples_total == 0:
        raise no_lines(work.object)
    return _Extraction(work, model, reader, bucket, folder, control).run(stream_path)


def _download(work: Work, bucket: Bucket, path: str) -> None:
    try:
        bucket.download(work.object, path, work.generation)
    except FileNotFoundError as error:
        raise Failure(
            "stream",
            f"Failed to read {work.object}: generation {work.generation} was overwritten or deleted "
            "while the run was working on it; give the new content a stream or a run of its own",
        ) from error


class _Extraction:
    """The stages, each a generator that takes from the one before it, and what they share."""

    def __init__(self, work: Work, model: Model, reader: Reader, bucket: Bucket, folder: str, control: Control):
        self._work, self._model, self._reader, self._control = work, model, reader, control
        self._pipeline = Pipeline(control.check_lease)
        self._existing = ExistingShards(work, model, bucket)
        self._partials = Partials(work, model, bucket, folder)
        uploads = bucket.checked(self._pipeline.check)  # none goes on when a stage has failed
        self._rejects = RejectsFile(folder)
        self._uploader = Uploader(work, model, uploads, control, self._existing, self._rejects)
        self._warm_up = model.warm_up(())
        self._lock = threading.Lock()
        self._unencoded: list[ShardBuffer] = []
        self._in_memory = 0
        self._most_open = _OPEN if model.devices > 1 else 1
        self._most_in_memory = _most_shards(work.spec.shard_size_bytes, self._most_open)

    def run(self, path: str) -> str:
        """The outcome, as `extract` returns it."""
        try:
            return self._run(path)
        finally:
            self._warm_up.cancel()

    def _run(self, path: str) -> str:
        control = self._control
        control.phase = "running"
        with self._pipeline as pipeline:
            windows = pipeline.stage("read", read_windows(path, self._work.object, self._reader), ahead=1)
            plans = pipeline.stage("plan", self._plan(windows), ahead=_PLANNED)
            running = pipeline.stage("device", self._compute(plans), ahead=1)
            shards = pipeline.stage("host", self._gather(running), ahead=1)
            encoded = pipeline.stage("encode", self._encode(shards), ahead=1)
            are_stored = pipeline.each("upload", encoded, self._store, _UPLOADS, self._note_freed)
            pipeline.wait_until(lambda: are_stored() or control.mode == "flush")
            if control.mode == "flush":
                # No shard that is encoded waits for another. What is not encoded is saved as it is: what is computed
                # now, and the batches that are on the device when they are in.
                late_are_stored = pipeline.each(
                    "late-upload", encoded, self._store, _MOST_SHARDS - _UPLOADS, self._note_freed
                )
                self._partials.save(list(self._unencoded))
                pipeline.wait_until(lambda: shards.has_ended)
                self._partials.save(list(self._unencoded))
                pipeline.wait_until(late_are_stored)
            pipeline.wait_until(are_stored)
        if self._uploader.is_committed:
            return "completed"
        return "drained" if control.mode == "drain" else "preempted"

    def _plan(self, windows: Iterator[Window]) -> Generator[ShardPlan]:
        """Plans the shards, and begins to compile the batch shapes of those that are not stored yet."""
        work, model = self._work, self._model
        capacity = Capacity(work.spec.shard_size_bytes, model.row_bytes, model.max_length, work.spec.tokens == "mean")
        for plan in plan_shards(self._rejects.note(self._tokenize(windows)), capacity):
            if plan.number not in self._existing:
                self._warm_up.add(shapes_of(plan, model.max_length))
            yield plan

    def _tokenize(self, windows: Iterator[Window]) -> Iterator[Sample | Reject]:
        for item in tokenize_windows(windows, self._reader):
            self._pipeline.check()
            yield item

    def _compute(self, plans: Iterator[ShardPlan]) -> Generator[Running]:
        """Starts the batches of every shard that is not stored yet, until the stream ends or control says otherwise.

        On several devices a batch waits until each has one of its width, from this shard or one of the next few.
        """
        control, devices = self._control, self._model.devices
        waiting: dict[int, list[Part]] = {}  # by width
        for plan in plans:
            if info := self._existing.has(plan):
                self._uploader.skip(plan, info)
                control.add_done(plan.last_sample - plan.first_sample + 1, 0)
                continue
            # Whoever waits for memory must not wait for shards that wait for it.
            is_full = self._in_memory >= self._most_in_memory
            yield from self._start_oldest(waiting, 0 if is_full else self._most_open - 1)
            if control.mode != "run" or (shard := self._start_shard(plan)) is None:
                break
            if shard.done.all():
                yield shard, None
            for number in np.flatnonzero(~shard.done):
                width = shard.batches[number].width
                waiting.setdefault(width, []).append((shard, int(number)))
                if len(waiting[width]) == devices:
                    if control.mode == "flush":
                        return
                    yield self._start_batches(waiting.pop(width))
            del shard
        yield from self._start_oldest(waiting, 0)

    def _start_oldest(self, waiting: dict[int, list[Part]], most: int) -> Iterator[Running]:
        """Starts the widths of the oldest waiting shards, for all shards, until at most `most` shards wait."""
        while waiting and self._control.mode != "flush":
            numbers = sorted({shard.plan.number for parts in waiting.values() for shard, _ in parts})
            if len(numbers) <= most:
                return
            oldest = {width for width, parts in waiting.items() if any(s.plan.number == numbers[0] for s, _ in parts)}
            for width in sorted(oldest):
                yield self._start_batches(waiting.pop(width))

    def _start_shard(self, plan: ShardPlan) -> ShardBuffer | None:
        """Waits until there is memory for it; None when there is no time left."""
        control = self._control
        if self._in_memory >= self._most_in_memory:
            control.phase = "uploading"
            self._pipeline.wait_until(lambda: self._in_memory < self._most_in_memory or control.mode == "flush")
            control.phase = "running"
        if control.mode == "flush":
            return None
        shard = start_shard(plan, self._model)
        self._partials.restore(shard)
        for number in np.flatnonzero(shard.done).tolist():
            self._count(shard, number)
        with self._lock:
            self._in_memory += 1
            self._unencoded.append(shard)
        return shard

    def _start_batches(self, parts: list[Part]) -> Running:
        """Of one shape, at most one for each device."""
        control = self._control
        batches = [(shard.plan.samples, shard.batches[number]) for shard, number in parts]
        height, width = batches[0][1].height, batches[0][1].width
        if not self._model.is_ready(height, width):
            control.phase = "compiling"
        in_flight = self._model.start([[samples[s] for s in batch.rows] for samples, batch in batches], height, width)
        control.phase = "running"
        return parts, in_flight

    def _gather(self, running: Iterator[Running]) -> Generator[ShardBuffer]:
        """Puts the rows of each batch where they belong; yields the shards that are complete."""
        for item in running:
            if item[1] is None:
                yield self._complete(item[0])
                del item
                continue
            parts, in_flight = item
            for (shard, number), host in zip(parts, in_flight.collect(), strict=True):
                put_batch(shard, number, host, self._model, self._work.object)
                self._count(shard, number)
                if shard.done.all():
                    yield self._complete(shard)
            del item, parts, in_flight, shard, host

    def _complete(self, shard: ShardBuffer) -> ShardBuffer:
        self._control.add_done(shard.plan.rejected, 0)
        return shard

    def _count(self, shard: ShardBuffer, number: int) -> None:
        rows = shard.batches[number].rows
        self._control.add_done(len(rows), sum(len(shard.plan.samples[s].token_ids) for s in rows))

    def _encode(self, shards: Iterator[ShardBuffer]) -> Generator[EncodedShard]:
        for shard in shards:
            if self._control.mode == "flush":
                continue  # it is saved as it is: quicker than any codec
            stats = shard_stats(shard, self._model)
            identity = shard_identity(self._work, shard.plan, self._model.fingerprint)
            data = encode_shard(
                self._work.spec.format, shard.plan, self._model.layers, shard.rows, shard.scale, identity, stats
            )
            encoded = EncodedShard(shard.plan, data, stats)
            with self._lock:
                self._unencoded.remove(shard)
            del shard, data
            yield encoded
            del encoded

    def _store(self, shard: EncodedShard) -> None:
        self._uploader.store(shard, self._pipeline)

    def _note_freed(self) -> None:
        with self._lock:
            self._in_memory -= 1
        self._pipeline.notify()


def _most_shards(shard_bytes: int, most_open: int) -> int:
    """How many shards may be in memory at once: enough to keep every stage busy, where they fit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(2, min(_MOST_SHARDS + most_open - 1, int(memory * _MEMORY_SHARE) // max(shard_bytes, 1)))
