"""One stream in, shards out: plan, compute, encode and upload, overlapping, in memory bounded by two shards."""

import os
from collections.abc import Iterator
from contextlib import closing

import jax
import numpy as np

from .control import Control, Interrupted
from .disk import empty_folder
from .failures import Failure
from .model.loaded import Model, run_batch
from .objects import Bucket
from .shards.partial import Partials, save_partial
from .shards.plan import Batch, ShardPlan, capacity_tokens, plan_shards
from .prefetch import prefetch
from .records.samples import read_samples
from .shards.shard import ShardInProgress, start_shard
from .shards.stored import StoredShards
from .records.stream import count_lines
from .shards.upload import Uploader
from .model.weights import DTYPES
from .work import Work


def extract(work: Work, model: Model, bucket: Bucket, folder: str, control: Control) -> str:
    """Stores every shard of the stream that is not stored yet; returns "completed", "drained" or "preempted".

    bucket: checked with control.check_lease, so that nothing is written after the lease was lost.
    folder: scratch space on this machine's disk, emptied first. Raises Failure or LeaseLost.
    """
    stream_path = os.path.join(empty_folder(folder), "stream")
    _download(work, bucket, stream_path)
    control.samples_total = count_lines(stream_path, work.object)
    if control.samples_total == 0:
        raise Failure(
            "stream",
            f"Failed to read {work.object}: it has no lines; upload it again with at least one record",
        )
    stored = StoredShards(work, model, bucket)
    partials = Partials(work, model, bucket, folder)
    control.phase = "running"
    with (
        Uploader(work, model, bucket, folder, control, stored) as uploader,
        closing(prefetch(_plan(work, model, stream_path, uploader))) as plans,
    ):
        for plan in plans:
            control.check_lease()
            if info := stored.has(plan):
                uploader.skip(plan, info)
                control.add_done(plan.last_sample - plan.first_sample + 1, 0)
                control.shards_done += 1
                continue
            try:
                uploader.wait_for_room()
                shard = start_shard(plan, model)
                partials.restore(shard)
                control.set_salvage(lambda shard=shard: save_partial(shard, work, model, bucket, folder))
                compute(shard, model, control)
                control.take_salvage()
            except Interrupted:
                if salvage := control.take_salvage():
                    salvage()
                uploader.finish()
                return "preempted"
            uploader.put(shard)
            if control.mode in ("drain", "flush") and not plan.final:
                uploader.finish()
                return "drained" if control.mode == "drain" else "preempted"
        uploader.finish()
        return "completed"


def _download(work: Work, bucket: Bucket, path: str) -> None:
    try:
        bucket.download(work.object, path, work.generation)
    except FileNotFoundError as error:
        raise Failure(
            "stream",
            f"Failed to read {work.object}: generation {work.generation} was overwritten or deleted "
            "while the run was working on it; give the new content a stream or a run of its own",
        ) from error


def _plan(work: Work, model: Model, path: str, uploader: Uploader) -> Iterator[ShardPlan]:
    itemsize = DTYPES[work.spec.dtype].itemsize
    capacity = capacity_tokens(work.spec.shard_size_bytes, len(model.layers), model.config.d_model, itemsize)
    return plan_shards(uploader.note_rejects(read_samples(path, work.object, model.reader)), capacity)


def compute(shard: ShardInProgress, model: Model, control: Control) -> None:
    """Fills the shard's rows, batch by batch. Between batches it raises LeaseLost (stop), or Interrupted (flush) once
    the batch that was already running is in.

    The next batch is already running on the device while the rows of this one are copied.
    """
    restored = [sample for batch in shard.batches[: shard.batches_done] for sample in batch.rows]
    control.add_done(len(restored), sum(len(shard.plan.samples[sample].token_ids) for sample in restored))
    running: tuple[Batch, jax.Array] | None = None
    for batch in [*shard.batches[shard.batches_done :], None]:
        control.check_lease()
        flushing = control.mode == "flush"
        started = (batch, _start(shard, batch, model, control)) if batch and not flushing else None
        if running:
            _collect(shard, *running, model, control)
        if batch and flushing:
            raise Interrupted
        running = started
    control.add_done(shard.plan.rejected, 0)


def _start(shard: ShardInProgress, batch: Batch, model: Model, control: Control) -> jax.Array:
    shape = (batch.height, batch.width)
    control.phase = "running" if shape in model.compiled else "compiling"
    output = run_batch(model, shard.plan, batch)  # returns after compiling, before computing
    model.compiled.add(shape)
    control.phase = "running"
    return output


def _collect(shard: ShardInProgress, batch: Batch, output: jax.Array, model: Model, control: Control) -> None:
    host = np.asarray(output)  # [layers, height, width, d_model]
    tokens = 0
    for row, sample in enumerate(batch.rows):
        begin, end = shard.offsets[sample], shard.offsets[sample + 1]
        for position, layer in enumerate(model.layers):
            shard.layers[layer][begin:end] = host[position, row, : end - begin]
        tokens += int(end - begin)
    shard.batches_done += 1
    control.add_done(len(batch.rows), tokens)
