"""One stream in, shards out: read, tokenise, plan, compute, gather, encode, upload, each beside the next.

Memory is bounded by a few shards, whatever the stream's length and the size of its shards.
"""

import os
from collections.abc import Generator, Iterator

import numpy as np

from .batch_queue import BatchQueue, Part
from .control import Control
from .disk import empty_folder
from .failures import Failure
from .model.device_output import InFlightBatch
from .model.model import Model
from .objects import Bucket
from .pipeline import Pipeline
from .records.samples import Reader, Reject, Sample, Window, count_samples, read_windows, tokenize_windows
from .records.stream import no_lines
from .shard_memory import UPLOADS, ShardMemory
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

_PLANNED = 4  # shards whose batch shapes are compiled ahead
_OPEN = 4  # shards that wait together for batches of one width, on several devices
_LATE_UPLOADS = 2  # more uploads at once when the machine goes away

# A group of batches that the devices compute, or a shard with no batch left to compute.
Running = tuple[list[Part], InFlightBatch] | tuple[ShardBuffer, None]


def extract(work: Work, model: Model, reader: Reader, bucket: Bucket, folder: str, control: Control) -> str:
    """Stores every shard of the stream that the bucket lacks; returns "completed", "drained" or "preempted".

    bucket: checked with control.check_lease, so that a worker that lost its lease writes nothing.
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
    """The stages and the state that they share. Each stage is a generator over the items of the stage before it."""

    def __init__(self, work: Work, model: Model, reader: Reader, bucket: Bucket, folder: str, control: Control):
        self._work, self._model, self._reader, self._control = work, model, reader, control
        self._pipeline = Pipeline(control.check_lease)
        self._existing = ExistingShards(work, model, bucket)
        self._partials = Partials(work, model, bucket, folder)
        self._rejects = RejectsFile(folder)
        uploads = bucket.checked(self._pipeline.check)  # an upload ends when a stage has failed
        self._uploader = Uploader(work, model, uploads, control, self._existing, self._rejects)
        self._warm_up = model.warm_up(())
        self._most_open = _OPEN if model.devices > 1 else 1
        self._memory = ShardMemory(work.spec.shard_size_bytes, self._most_open)

    def run(self, path: str) -> str:
        """Returns the outcome, as `extract` does."""
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
            are_stored = pipeline.each("upload", encoded, self._store, UPLOADS, self._note_stored)
            pipeline.wait_until(lambda: are_stored() or control.mode == "flush")
            if control.mode == "flush":
                # Every encoded shard is uploaded at once. The others are saved as they are: first the shard that is
                # computed, then the batches that are still on the device.
                late_are_stored = pipeline.each("late-upload", encoded, self._store, _LATE_UPLOADS, self._note_stored)
                self._partials.save(self._memory.unencoded)
                pipeline.wait_until(lambda: shards.has_ended)
                self._partials.save(self._memory.unencoded)
                pipeline.wait_until(late_are_stored)
            pipeline.wait_until(are_stored)
        if self._uploader.is_committed:
            return "completed"
        return "drained" if control.mode == "drain" else "preempted"

    def _plan(self, windows: Iterator[Window]) -> Generator[ShardPlan]:
        """Plans the shards, and begins to compile the batch shapes of those that the bucket lacks."""
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
        """Starts the batches of every shard that the bucket lacks, until the stream ends or control ends the
        extraction.

        On several devices a batch waits until each device has a batch of its width, from this shard or the next few.
        """
        control, queue = self._control, BatchQueue(self._model.devices)
        for plan in plans:
            if info := self._existing.has(plan):
                self._uploader.skip(plan, info)
                control.add_done(plan.last_sample - plan.first_sample + 1, 0)
                continue
            # Shards that wait in the queue hold memory: when it is full, all of them start.
            yield from self._start_oldest(queue, 0 if self._memory.is_full else self._most_open - 1)
            if control.mode != "run" or (shard := self._start_shard(plan)) is None:
                break
            if shard.done.all():
                yield shard, None
            for number in np.flatnonzero(~shard.done).tolist():
                if group := queue.add(shard, number):
                    if control.mode == "flush":
                        return
                    yield self._start_batches(group)
            group = None
            del shard
        yield from self._start_oldest(queue, 0)

    def _start_oldest(self, queue: BatchQueue, most: int) -> Iterator[Running]:
        """Starts the groups of the oldest shards until at most `most` shards wait."""
        while self._control.mode != "flush" and (groups := queue.take_oldest(most)):
            while groups:
                yield self._start_batches(groups.pop(0))

    def _start_shard(self, plan: ShardPlan) -> ShardBuffer | None:
        """Waits for memory; returns None when the machine goes away first."""
        control = self._control
        if self._memory.is_full:
            control.phase = "uploading"
            self._pipeline.wait_until(lambda: not self._memory.is_full or control.mode == "flush")
            control.phase = "running"
        if control.mode == "flush":
            return None
        shard = start_shard(plan, self._model)
        self._partials.restore(shard)
        for number in np.flatnonzero(shard.done).tolist():
            self._count(shard, number)
        self._memory.add(shard)
        return shard

    def _start_batches(self, parts: list[Part]) -> Running:
        """Starts batches of one shape, at most one for each device."""
        control = self._control
        batches = [(shard.plan.samples, shard.batches[number]) for shard, number in parts]
        height, width = batches[0][1].height, batches[0][1].width
        if not self._model.is_ready(height, width):
            control.phase = "compiling"
        in_flight = self._model.start([[samples[s] for s in batch.rows] for samples, batch in batches], height, width)
        control.phase = "running"
        return parts, in_flight

    def _gather(self, running: Iterator[Running]) -> Generator[ShardBuffer]:
        """Copies the rows of each batch into its shard; yields the shards that are complete."""
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
                continue  # saved as it is, which is faster than any codec
            stats = shard_stats(shard, self._model)
            identity = shard_identity(self._work, shard.plan, self._model.fingerprint)
            data = encode_shard(
                self._work.spec.format, shard.plan, self._model.layers, shard.rows, shard.scale, identity, stats
            )
            encoded = EncodedShard(shard.plan, data, stats)
            self._memory.note_encoded(shard)
            del shard, data
            yield encoded
            del encoded

    def _store(self, shard: EncodedShard) -> None:
        self._uploader.store(shard, self._pipeline)

    def _note_stored(self) -> None:
        self._memory.note_stored()
        self._pipeline.notify()
