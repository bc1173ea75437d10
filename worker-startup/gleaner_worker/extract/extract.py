"""Extracts one stream into shards: tokenises, plans, computes, gathers, encodes and uploads, each on its own threads.

Memory is bounded by a few shards, whatever the stream's length and the size of its shards.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..failures import Failure
from ..model.model import Model
from ..model.program.device_output import HostRow, InFlightStep
from ..records.lines.stream import count_lines, no_lines
from ..records.samples.generated import continue_documents
from ..records.samples.sample import Reject, Sample
from ..records.samples.sample_settings import SampleSettings
from ..records.samples.samples import Documents, make_samples, read_documents
from ..shards.answers import StoredAnswers
from ..shards.encode import encode_shard, moment_tensors
from ..shards.existing_shards import ExistingShards
from ..shards.first_samples import FirstSamples
from ..shards.partial import Partials
from ..shards.plan import Capacity, ShardPlan, plan_shards
from ..shards.rejects import RejectsFile
from ..shards.shard_buffer import ShardBuffer, check_finite, put_samples, start_shard
from ..shards.shard_identity import shard_identity
from ..shards.shard_stats import shard_stats
from ..shards.windows import MAX_WINDOW_BYTES, Place, Row, Window, plan_windows, window_limits
from ..spec.work import Work
from ..storage.disk import empty_folder
from ..storage.objects import Bucket
from .pipeline import Handover, Pipeline
from .shard_memory import ShardMemory
from .state import ExtractionState
from .upload import EncodedShard, Uploader
from .upload_streams import UploadStreams

_PLANNED = 4  # shard plans and windows made ahead
_LATE_UPLOADS = 2  # more uploads at once when the machine goes away
# Threads that copy rows into shards. A thread copies 5 GB/s, so eight fill a host of 200 Gbit/s.
_COPIERS = min(8, max(1, (os.cpu_count() or 1) // 8))


@dataclass(frozen=True)
class Step:
    """Rows that the devices compute."""

    rows: list[Row]
    in_flight: InFlightStep


# A step, or a shard without a sample left to compute.
Running = Step | ShardBuffer


def extract(
    work: Work,
    model: Model,
    settings: SampleSettings,
    bucket: Bucket,
    folder: str,
    state: ExtractionState,
    streams: UploadStreams | None = None,
) -> str:
    """Stores every shard of the stream that the bucket lacks; returns "completed", "drained" or "preempted".

    bucket: checked with state.check_lease, so that a worker that lost its lease writes nothing.
    folder: scratch space on this machine's disk, emptied first. streams: of the last extraction, which know the
    network. Raises Failure or LeaseLost.
    """
    path = os.path.join(empty_folder(folder), "stream")
    try:
        bucket.download(work.object, path, work.generation)
    except FileNotFoundError as error:
        raise Failure(
            "stream",
            f"Failed to read {work.object}: generation {work.generation} was overwritten or deleted "
            "while the run was working on it; give the new content a stream or a run of its own",
        ) from error
    lines = count_lines(path, work.object, state.check_lease)
    if lines == 0:
        raise no_lines(work.object)
    if settings.samples_per_line is not None:
        state.samples_total = lines * settings.samples_per_line
    streams = streams or UploadStreams()
    return _Extraction(work, model, settings, bucket, folder, state, streams).run(path)


class _Extraction:
    """The stages and the state that they share. Each stage is a generator over the items of the stage before it."""

    def __init__(
        self,
        work: Work,
        model: Model,
        settings: SampleSettings,
        bucket: Bucket,
        folder: str,
        state: ExtractionState,
        streams: UploadStreams,
    ):
        streams.reset()
        self._streams = streams
        self._work, self._model, self._settings, self._state = work, model, settings, state
        self._pipeline, self._bucket = Pipeline(state.check_lease), bucket
        self._existing = ExistingShards(work, model, bucket)
        self._partials = Partials(work, model, bucket, folder)
        self._rejects, self._first = RejectsFile(folder), FirstSamples()
        uploads = bucket.checked(self._pipeline.check)  # an upload ends when a stage has failed
        about = self._rejects, lambda: self._first.content(settings)
        self._uploader = Uploader(work, model, uploads, state, self._existing, *about, self._streams)
        self._pooled = work.spec.selection.is_pool
        self._window = window_limits(work.spec, model.capture)
        self._open: dict[int, ShardBuffer] = {}  # by shard number, from the first row to the last
        window_bytes = min(MAX_WINDOW_BYTES, work.spec.window_tokens * (model.row_bytes + model.capture.sample_bytes))
        window_shards = 1 + window_bytes // work.spec.shard_size_bytes
        self._memory = ShardMemory(work.spec.shard_size_bytes, window_shards, lambda: self._streams.count)

    def run(self, path: str) -> str:
        """Returns the outcome, as `extract` does."""
        state = self._state
        documents = read_documents(path, self._work.object, self._settings, self._pipeline.check)
        state.phase = "running"
        with self._pipeline as pipeline:
            batches: Iterator[Documents] = pipeline.stage("tokenize", documents, ahead=1)
            if self._work.spec.generates:
                answers = StoredAnswers(self._work, self._bucket, self._model.fingerprint, self._settings, self._answer)
                generated = continue_documents(batches, self._settings, answers)
                batches = pipeline.stage("generate", generated, ahead=1)
            plans = pipeline.stage("plan", self._plan(batches), ahead=_PLANNED)
            running = pipeline.stage("device", self._compute(plans), ahead=1)
            shards = pipeline.stage("host", self._gather(running), ahead=1)
            encoded = pipeline.stage("encode", self._encode(shards), ahead=1)
            are_stored = self._upload(pipeline, encoded)
            if state.mode == "flush":
                # Every encoded shard is uploaded at once. The others are saved as they are: first the shards that are
                # computed, then the steps that are still on the device.
                late_are_stored = pipeline.each("late-upload", encoded, self._store, _LATE_UPLOADS, self._note_stored)
                self._partials.save(self._memory.unencoded)
                pipeline.wait_until(lambda: shards.has_ended)
                self._partials.save(self._memory.unencoded)
                pipeline.wait_until(late_are_stored)
            pipeline.wait_until(are_stored)
            if state.mode == "drain":
                self._partials.save(self._memory.unencoded)  # shards that continue in the next window
        if self._uploader.is_committed:
            return "completed"
        return "drained" if state.mode == "drain" else "preempted"

    def _upload(self, pipeline: Pipeline, encoded: Handover[EncodedShard]) -> Callable[[], bool]:
        """Stores shards until all are stored or the machine goes away; returns whether all are stored."""
        streams, stages = self._streams, []

        def are_stored() -> bool:
            return all(is_done() for is_done in stages)

        while more := self._threads_to_start(are_stored if stages else lambda: False):
            name = f"upload-{len(stages)}"
            stages.append(pipeline.each(name, encoded, self._store, more, self._note_stored, streams.leave))
        return are_stored

    def _threads_to_start(self, are_stored: Callable[[], bool]) -> int:
        """Waits for a change of the number of uploads; returns 0 when all shards are stored, or at a flush."""
        more = 0

        def has_news() -> bool:
            nonlocal more
            if are_stored() or self._state.mode == "flush":
                return True
            more = self._streams.start()
            return more > 0

        self._pipeline.wait_until(has_news)
        return more

    def _plan(self, batches: Iterator[Documents]) -> Generator[ShardPlan | Window]:
        """Plans the shards and the rows of their samples."""
        work, model = self._work, self._model
        capacity = Capacity(work.spec.shard_size_bytes, model.row_bytes, self._pooled, model.capture.sample_bytes)
        plans = plan_shards(self._rejects.note(self._first.note(self._samples(batches))), capacity)
        yield from plan_windows(plans, self._window, model.row_limits, self._pooled)

    def _answer(self, prompts: list[np.ndarray]) -> list[np.ndarray]:
        def check() -> None:
            self._pipeline.check()
            if self._state.mode != "run":  # no further shard begins
                self._pipeline.wait_until(lambda: False)

        return self._model.generate(prompts, check)

    def _samples(self, batches: Iterator[Documents]) -> Iterator[Sample | Reject]:
        last = -1
        for item in make_samples(batches, self._settings):
            self._pipeline.check()
            yield item
            last = item.last
        self._state.samples_total = last + 1

    def _compute(self, plan: Handover[ShardPlan | Window]) -> Generator[Running]:
        """Starts the rows of every shard that the bucket lacks, until the stream ends or the mode changes.

        A step takes rows from any window, so only the last one may have empty rows.
        """
        state, waiting = self._state, deque[Row]()
        missing: dict[int, ShardPlan] = {}  # shards that are not begun
        for item in self._until_ended(plan):
            if isinstance(item, Window):
                yield from self._begin(item, missing, waiting)
                while len(waiting) >= self._model.rows_per_step and state.mode != "flush":
                    yield self._start_step(waiting)
            elif info := self._existing.find(item):
                self._uploader.skip(item, info)
                state.add_done(item.last_sample - item.first_sample + 1, 0)
            elif item.samples:
                missing[item.number] = item
            else:  # every line of it is rejected
                yield from self._start_all(waiting)
                if shard := self._start_shard(item):
                    yield shard
        yield from self._start_all(waiting)

    def _until_ended(self, plan: Handover[ShardPlan | Window]) -> Iterator[ShardPlan | Window]:
        """The items until the mode changes, which may be during the wait for a slow tokenizer."""

        def has_ended() -> bool:
            return self._state.mode != "run"

        while True:
            self._pipeline.wait_until(lambda: plan.is_ready or has_ended())
            if has_ended() or (item := next(plan, None)) is None:
                return
            yield item

    def _begin(self, window: Window, missing: dict[int, ShardPlan], waiting: deque[Row]) -> Iterator[Running]:
        """Begins the shards of the window, and adds its rows with a missing sample to `waiting`."""
        wanted = [number for number in window.shards if number in missing]
        if wanted and not self._has_room(window, wanted):
            # Shards of earlier windows hold the memory: their last rows cannot wait for more rows.
            yield from self._start_all(waiting)
        for number in wanted:
            if (shard := self._start_shard(missing.pop(number), window)) is None:
                return
            if shard.done.all():
                yield shard
            else:
                self._open[number] = shard
        waiting.extend(row for row in window.rows if any(self._is_missing(place) for place in row))

    def _is_missing(self, place: Place) -> bool:
        shard = self._open.get(place.shard)
        return shard is not None and not shard.done[place.position]

    def _has_room(self, window: Window | None, more: list[int]) -> bool:
        """Whether memory holds `more` shards too. The shards of one window are always held together."""
        others = self._memory.count - sum(number in self._open for number in (window.shards if window else ()))
        return others <= 0 or self._memory.count + len(more) <= self._memory.most

    def _start_all(self, waiting: deque[Row]) -> Iterator[Running]:
        while waiting and self._state.mode != "flush":
            yield self._start_step(waiting)

    def _start_shard(self, plan: ShardPlan, window: Window | None = None) -> ShardBuffer | None:
        """Waits for memory; returns None when the machine goes away first."""
        state = self._state
        if not self._has_room(window, [plan.number]):
            state.phase = "uploading"
            self._pipeline.wait_until(lambda: self._has_room(window, [plan.number]) or state.mode == "flush")
            state.phase = "running"
        if state.mode == "flush":
            return None
        shard = start_shard(plan, self._model)
        self._partials.restore(shard)
        for position, sample in enumerate(plan.samples):
            if shard.done[position]:
                state.add_done(1, len(sample.token_ids))
        self._memory.add(shard)
        return shard

    def _start_step(self, waiting: deque[Row]) -> Step:
        rows = [waiting.popleft() for _ in range(min(len(waiting), self._model.rows_per_step))]
        return Step(rows, self._model.start([[place.sample for place in row] for row in rows]))

    def _gather(self, running: Iterator[Running]) -> Generator[ShardBuffer]:
        """Copies the vectors of each row into their shards; yields the shards that are complete."""
        with ThreadPoolExecutor(_COPIERS, "copy") as copiers:
            for item in running:
                if isinstance(item, ShardBuffer):
                    yield self._complete(item)
                    del item
                    continue
                for _ in copiers.map(self._put_row, item.rows, item.in_flight.collect()):
                    pass
                yield from self._completed(item)
                del item

    def _put_row(self, row: Row, host: HostRow) -> None:
        """Copies the missing samples of the row. Raises Failure for a value that is not finite."""
        check_finite(host, [place.sample.index for place in row], self._model, self._work.object)
        missing = [b for b, place in enumerate(row) if self._is_missing(place)]
        for number in {row[b].shard for b in missing}:
            samples = [b for b in missing if row[b].shard == number]
            put_samples(self._open[number], [row[b].position for b in samples], host, samples)
        self._state.add_done(len(missing), sum(len(row[b].sample.token_ids) for b in missing))

    def _completed(self, step: Step) -> Iterator[ShardBuffer]:
        """The shards that the rows of the step completed."""
        for number in sorted({place.shard for row in step.rows for place in row}):
            if number in self._open and self._open[number].done.all():
                yield self._complete(self._open.pop(number))

    def _complete(self, shard: ShardBuffer) -> ShardBuffer:
        self._state.add_done(shard.plan.rejected, 0)
        return shard

    def _encode(self, shards: Iterator[ShardBuffer]) -> Generator[EncodedShard]:
        for shard in shards:
            if self._state.mode == "flush":
                continue  # saved as it is, which is faster than any codec
            stats = shard_stats(shard, self._model)
            identity = shard_identity(self._work, shard.plan, self._model.fingerprint)
            layers = {site: self._model.capture.layers_of(site) for site in self._model.sites}
            metadata = identity | self._model.described_outputs
            sums = moment_tensors(self._model.capture, shard.moments)
            data = encode_shard(
                self._work.spec.format, shard.plan, layers, shard.rows, shard.scale, metadata, stats, None, sums
            )
            encoded = EncodedShard(shard.plan, data)
            self._memory.note_encoded(shard)
            del shard, data
            yield encoded
            del encoded

    def _store(self, shard: EncodedShard) -> None:
        self._streams.begin()
        self._uploader.store(shard, self._pipeline)
        self._streams.end()

    def _note_stored(self) -> None:
        self._memory.note_stored()
        self._pipeline.notify()
