"""The shared state of the current stream: its progress, and the way in which its extraction ends."""

import threading
import time
from collections import deque
from collections.abc import Callable

from ..failures import Interrupted, LeaseLost

# Later modes have precedence: a lost lease ends an extraction that drains.
_MODES = ("run", "drain", "flush", "stop")


class ExtractionState:
    """Shared by the extraction, the heartbeat and the main thread.

    drain: end after the windows in hand. flush: the VM is preempted; start nothing and store every computed step.
    stop: end now, write nothing. on_wait: called when a wait for a host begins, for a heartbeat at once.
    """

    flush_s = 15.0  # from the notice of a preemption to the end of the uploads

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._mode = "run"
        self._done: deque[tuple[float, int]] = deque()  # (monotonic seconds, tokens) of the last 30 s
        self.waits_for: str | None = None  # the host that does not answer, and its error
        self.restart()

    def restart(self) -> None:
        """Begins the stream again, without progress."""
        self.phase = "loading"
        self.samples_done = 0
        self.samples_total: int | None = None
        self.tokens_done = 0
        self.shards_done = 0

    @property
    def mode(self) -> str:
        return self._mode

    def request(self, mode: str) -> None:
        """Sets the mode, unless a later mode is set."""
        with self._lock:
            if _MODES.index(mode) > _MODES.index(self._mode):
                self._mode = mode

    def set_waits_for(self, cause: str | None) -> None:
        """Sets the cause of the current wait; None ends the wait."""
        begins = cause is not None and self.waits_for is None
        self.waits_for = cause
        if begins:
            self._on_wait()

    def check_lease(self) -> None:
        """Raises LeaseLost in the mode `stop`."""
        if self._mode == "stop":
            raise LeaseLost

    def check_running(self) -> None:
        """For work that can end at any time, such as a download. Raises LeaseLost or Interrupted."""
        self.check_lease()
        if self._mode != "run":
            raise Interrupted

    def add_done(self, samples: int, tokens: int) -> None:
        with self._lock:
            self.samples_done += samples
            self.tokens_done += tokens
            self._done.append((time.monotonic(), tokens))
            self._forget()

    def progress(self) -> dict:
        """The `progress` of a heartbeat; the rate is over the last 30 s at most, with the waits for uploads."""
        with self._lock:
            self._forget()
            # The first entry only marks the start of the interval.
            elapsed = time.monotonic() - self._done[0][0] if len(self._done) > 1 else 0.0
            rate = sum(tokens for _, tokens in list(self._done)[1:]) / elapsed if elapsed > 0 else None
            return {
                "samples_done": self.samples_done,
                "samples_total": self.samples_total,
                "tokens_done": self.tokens_done,
                "shards_done": self.shards_done,
                "tokens_per_s": None if rate is None else round(rate, 1),
                "waits_for": self.waits_for,
            }

    def _forget(self) -> None:
        while self._done and self._done[0][0] <= time.monotonic() - 30:
            self._done.popleft()
