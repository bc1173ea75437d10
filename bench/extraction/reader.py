"""Shuffled batches of one layer through gleaner_reader, compared with numpy picking as many rows from the same file."""

import os

import ml_dtypes
import numpy as np

import gleaner_reader
from gleaner_worker.shards.plan import ShardPlan

from .job import samples_of
from .timing import Report, speed_up, take_turns
from .upload import encode_rows
from .workplace import Workplace

CLAIM = "shuffled batches of one layer: gleaner_reader against numpy picking random rows of a mapped file"
_BATCH_ROWS = 4096


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    samples, layers = (16, 2) if place.is_quick else (512, 3)
    plan = ShardPlan(1, 0, samples - 1, tuple(samples_of(place.token_rows(samples, 256), "all")), True)
    values = np.random.default_rng(0).standard_normal((layers, plan.tokens, 896), np.float32).astype(ml_dtypes.bfloat16)
    path = place.path("shard_0001.safetensors")
    with open(path, "wb") as file:
        file.write(encode_rows("safetensors", plan, {"resid_post": values}).read())
    begin = os.path.getsize(path) - values.nbytes + values[0].nbytes  # the layers are the last tensors, in order
    mapped = np.memmap(path, np.uint16, "r", begin, values.shape[1:])
    rng = np.random.default_rng(1)

    def numpy_batches() -> int:
        order = rng.permutation(len(mapped))
        return sum(len(mapped[order[at : at + _BATCH_ROWS]]) for at in range(0, len(order), _BATCH_ROWS))

    def reader_batches() -> int:
        shard = gleaner_reader.open(path)
        return sum(len(batch) for batch in shard.batches(1, batch_rows=_BATCH_ROWS, seed=0))

    if numpy_batches() != reader_batches():
        raise RuntimeError("Failed to measure: the two sides read different numbers of rows")
    seconds = take_turns({"numpy": numpy_batches, "reader": reader_batches}, place.rounds(7))
    rate = f"{len(mapped) / min(seconds['reader']):.0f} rows/s, numpy {len(mapped) / min(seconds['numpy']):.0f}"
    report.figures.append(speed_up("bf16, 4,096 rows a batch", seconds["numpy"], seconds["reader"], None, rate))
    return report
