"""Encoding and uploading over TLS, and reading weights: bytes a second of each core that this process uses."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import ml_dtypes
import numpy as np

from gleaner_worker.storage.upload_content import BytesContent

from .sink import running_sink
from .timing import Figure, Report
from .upload import a_plan, send_encoded
from .workplace import Workplace

CLAIM = "uploads into a bucket on the loopback over TLS and reads from it, by the processor time of this process alone"
_PIECE_BYTES = 16 << 20  # as the worker reads weights
_PIECES = 32


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    plan, values = a_plan(place)
    rows = {"resid_post": values.astype(ml_dtypes.bfloat16)}
    with running_sink(with_tls=True) as bucket:
        for uploads in (1, 2, 4):
            send = partial(send_encoded, bucket, plan, rows, uploads)
            report.figures.append(_measure(f"encoded shards, {uploads} at once", place, send))
        bucket.create("piece", BytesContent(bytes(_PIECE_BYTES)), {}, "application/octet-stream")
        generation = bucket.list("piece")[0].generation
        for reads in (1, 4, 16):
            sides = {
                "weights, into arrays": lambda _: bucket.read_into(
                    "piece", generation, 0, np.empty(_PIECE_BYTES, np.uint8).data
                ),
                "weights, by the client": lambda _: bucket.read_range("piece", generation, 0, _PIECE_BYTES),
            }
            for what, read in sides.items():
                figure = _measure(f"{what}, {reads} at once", place, partial(_read_pieces, read, reads))
                report.figures.append(figure)
    return report


def _read_pieces(read: Callable[[int], object], reads: int) -> int:
    with ThreadPoolExecutor(reads) as pool:
        list(pool.map(read, range(_PIECES)))
    return _PIECES * _PIECE_BYTES


def _measure(what: str, place: Workplace, send: Callable[[], int]) -> Figure:
    send()
    per_core, per_second = [], []
    for _ in range(place.rounds(5)):
        cpu, begin = time.process_time(), time.perf_counter()  # of all threads; the sink is another process
        size = send()
        per_core.append(size / (time.process_time() - cpu) / 1e9)
        per_second.append(size / (time.perf_counter() - begin) / 1e9)
    detail = f"{statistics.median(per_second):.2f} GB/s on the clock, beside the sink"
    return Figure(what, statistics.median(per_core), None, min(per_core), max(per_core), detail, "GB/s a core")
