"""Memory of the extraction over 10,000 samples, which must not grow with the stream."""

import os
import threading
import time

import numpy as np

from .job import load, put_stream, store
from .sink import running_sink
from .timing import Figure, Report
from .workplace import Workplace

CLAIM = "memory over 10,000 samples, many shards: flat"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    samples = 300 if place.is_quick else 10_000
    small = Workplace(place.folder, True)  # of the tiny model, because only the stream must be long
    lengths = np.random.default_rng(0).integers(20, 200, samples)
    ids = small.token_rows(1, int(lengths.max()))[0]
    with running_sink() as bucket:
        stream = put_stream(bucket, [{"tokens": ids[:length].tolist()} for length in lengths])
        model = load(small, small.spec(shard_size_gb=0.02))
        store(small, model, bucket, stream if place.is_quick else put_stream(bucket, [{"tokens": ids.tolist()}] * 500))
        at_rest = _resident()
        watched = _Watch()
        control = store(small, model, bucket, stream)
        watched.stop()
    if control.samples_done != samples:
        raise RuntimeError(f"Failed to measure: {control.samples_done} of {samples} samples were stored")
    second, last = (max(part) for part in (watched.quarter(1), watched.quarter(3)))
    report.figures.append(
        Figure(
            "peak memory of the second quarter over that of the last",
            second / last,
            0.95,
            detail=f"{second / 2**20:.0f} and {last / 2**20:.0f} MiB; at rest {at_rest / 2**20:.0f} MiB; "
            f"{samples} samples, {int(lengths.sum())} tokens, {control.shards_done} shards",
            unit="",
        )
    )
    return report


class _Watch:
    """The resident memory of this process, every 20 ms."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def quarter(self, number: int) -> list[int]:
        size = max(1, len(self.seen) // 4)
        return self.seen[number * size : (number + 1) * size]

    def _look(self) -> None:
        while not self._is_over.is_set():
            self.seen.append(_resident())
            time.sleep(0.02)


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE
