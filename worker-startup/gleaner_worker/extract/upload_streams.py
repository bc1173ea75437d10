"""The number of uploads at once, which grows while the throughput grows.

The network between a host and Cloud Storage bounds each stream, by a rate that no host knows in advance. Only more
streams show whether there is room for more. A stream is the upload of one shard: see the decision
docs/adr/20261127-shards-are-uploaded-whole.md.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST = min(24, max(4, (os.cpu_count() or 1) // 8))
MOST = 64
_INTERVAL_S = 10.0
_IDLE_SHARE = 0.1  # of the streams' time; with more, something else bounds the throughput
_GROWTH = 0.1  # of the throughput, that half as many streams again must bring
_AGAIN_S = 120.0  # from streams that were added in vain to the next try, because a network changes


class UploadStreams:
    """Counts streams and their bytes. Every method may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._lock = clock, threading.Lock()
        self.count = FIRST
        self.reset()

    def reset(self) -> None:
        """Begins an extraction, which has no thread yet, with as many streams as the last one."""
        self._added = 0  # by the last growth, which the next interval judges
        self._before = 0.0  # bytes per second before that growth
        self._threads = self._busy = 0
        self._interval_s = _INTERVAL_S
        self._began = self._at = self._clock()
        # Since `_began`.
        self._sent = 0
        self._idle_s = 0.0  # over all streams
        # Of the whole extraction: bytes, time with at least one upload, and time in which every stream was busy.
        self._all_sent = 0
        self._sending_s = self._full_s = 0.0

    def measured(self) -> dict:
        """What the uploads of this extraction measured, for metadata.json."""
        with self._lock:
            self._advance()
            times = {"seconds": round(self._sending_s, 3), "bound_seconds": round(self._full_s, 3)}
            return {"bytes": self._all_sent} | times

    def begin(self) -> None:
        """Notes a stream that begins a shard."""
        self._note(1)

    def end(self) -> None:
        """Notes a stream that has stored its shard."""
        self._note(-1)

    def sent(self, size: int) -> None:
        """Notes bytes that a stream has sent."""
        with self._lock:
            self._sent += size
            self._all_sent += size

    def start(self) -> int:
        """The number of threads to start now."""
        with self._lock:
            self._judge()
            more = max(0, self.count - self._threads)
            self._threads += more
            return more

    def leave(self) -> bool:
        """Whether a thread that has stored a shard takes no other."""
        with self._lock:
            leaves = self._threads > self.count
            self._threads -= leaves
            return leaves

    def _judge(self) -> None:
        """Changes `count` at the end of an interval in which all streams were busy."""
        self._advance()
        seconds = self._at - self._began
        if seconds < self._interval_s:
            return
        rate, is_bound = self._sent / seconds, self._idle_s <= _IDLE_SHARE * seconds * self.count
        self._began, self._sent, self._idle_s = self._at, 0, 0.0
        if not is_bound or not rate:
            return
        if self._added and rate <= self._before * (1 + _GROWTH):
            self.count, self._added, self._interval_s = self.count - self._added, 0, _AGAIN_S
            log.info("%.2f GB/s of uploads: %d streams are enough", rate / 1e9, self.count)
            return
        self._added = min(max(1, self.count // 2), MOST - self.count)
        self.count, self._before, self._interval_s = self.count + self._added, rate, _INTERVAL_S
        if self._added:
            log.info("%.2f GB/s of uploads: adding streams, up to %d", rate / 1e9, self.count)

    def _note(self, change: int) -> None:
        with self._lock:
            self._advance()
            self._busy += change

    def _advance(self) -> None:
        now = self._clock()
        elapsed = now - self._at
        self._idle_s += max(0, self.count - self._busy) * elapsed
        self._sending_s += elapsed if self._busy else 0
        self._full_s += elapsed if self._busy >= self.count else 0
        self._at = now
