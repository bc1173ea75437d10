"""The compiled programs of a model, one per batch shape: made ahead in the background, or when first asked for."""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from ..failures import Failure

log = logging.getLogger(__name__)

Shape = tuple[int, int]  # height, width


class Programs:
    """Makes each shape's program once, in whichever thread asks first; the others wait for it."""

    def __init__(self, compile_shape: Callable[[Shape], Any]):
        self._compile = compile_shape
        self._lock = threading.Lock()
        self._futures: dict[Shape, Future] = {}

    def get(self, shape: Shape) -> Any:
        """Raises what compiling raised, each time."""
        with self._lock:
            future = self._futures.get(shape)
            if is_first := future is None:
                future = self._futures[shape] = Future()
        if is_first:
            try:
                future.set_result(self._compile(shape))
            except BaseException as error:  # handed over to whoever asks
                future.set_exception(error)
        return future.result()

    def is_ready(self, shape: Shape) -> bool:
        future = self._futures.get(shape)
        return future is not None and future.done()


class WarmUp:
    """Compiling every shape in the background, in the order given, while those that are ready are used."""

    def __init__(self, programs: Programs, shapes: Iterable[Shape], tell: Callable[[int, int], None]):
        self._programs = programs
        self._shapes = list(shapes)
        self._tell = tell
        self._lock = threading.Lock()
        self._next = self.done = 0
        self._is_cancelled = False
        # One core at least stays free for those who use what is ready.
        count = min(len(self._shapes), max(1, min(4, (os.cpu_count() or 1) // 2)))
        # No daemons, as the thread that asks may be: a process that ends while one of these compiles would be torn
        # down under the compiler.
        self._threads = [threading.Thread(target=self._run, name="compile", daemon=False) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Until every shape is there, or nothing more is begun. A shape that failed says so to whoever uses it."""
        for thread in self._threads:
            thread.join()

    def cancel(self) -> None:
        """Begins nothing more; what is being compiled cannot be stopped, and is not waited for."""
        self._is_cancelled = True

    def _run(self) -> None:
        while not self._is_cancelled:
            with self._lock:
                if self._next == len(self._shapes):
                    return
                shape = self._shapes[self._next]
                self._next += 1
            try:
                self._programs.get(shape)
            except Failure as failure:
                log.warning("%s", failure.reason)
            except Exception:
                log.exception("Failed to compile batches of %d x %d tokens ahead", *shape)
            with self._lock:
                self.done += 1
                self._tell(self.done, len(self._shapes))


def likely_first(shapes: Iterable[Shape], likely: Iterable[int]) -> list[Shape]:
    """The shapes of `likely` widths in that order, then the others, those nearest to 512 tokens before the rest."""
    widths = list(likely)

    def rank(shape: Shape) -> tuple[int, float]:
        width = shape[1]
        return (widths.index(width) if width in widths else len(widths), max(width / 512, 512 / width))

    return sorted(shapes, key=rank)
