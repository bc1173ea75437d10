"""The compiled programs of a model, one per batch shape: made ahead in the background, or at the first request."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from ..failures import Failure

log = logging.getLogger(__name__)

Shape = tuple[int, int]  # height, width


class Programs:
    """Compiles each shape once, in the first thread that asks; other threads wait for the result."""

    def __init__(self, compile_shape: Callable[[Shape], Any]):
        self._compile = compile_shape
        self._lock = threading.Lock()
        self._futures: dict[Shape, Future] = {}

    def get(self, shape: Shape) -> Any:
        """Raises the error of the compilation, on every call."""
        with self._lock:
            future = self._futures.get(shape)
            if is_first := future is None:
                future = self._futures[shape] = Future()
        if is_first:
            try:
                future.set_result(self._compile(shape))
            except BaseException as error:  # every caller of result() raises it
                future.set_exception(error)
        return future.result()

    def is_ready(self, shape: Shape) -> bool:
        future = self._futures.get(shape)
        return future is not None and future.done()


class WarmUp:
    """Compiles shapes in the background, in the order in which they are added, while other shapes are used."""

    def __init__(self, programs: Programs, shapes: Iterable[Shape] = ()):
        self._programs = programs
        self._lock = threading.Lock()
        self._added: set[Shape] = set()
        self._waiting: deque[Shape] = deque()
        self._working = 0
        # At least one core stays free for the use of compiled programs.
        self._most = max(1, min(4, (os.cpu_count() or 1) // 2))
        self._threads: list[threading.Thread] = []
        self.add(shapes)

    def add(self, shapes: Iterable[Shape]) -> None:
        """Returns at once. A shape that was added before, or that is ready, is not compiled again."""
        with self._lock:
            new = [shape for shape in dict.fromkeys(shapes) if shape not in self._added]
            self._added.update(new)
            self._waiting += [shape for shape in new if not self._programs.is_ready(shape)]
            for _ in range(min(len(self._waiting), self._most - self._working)):
                # No daemon threads, although the asking thread may be one: a process must not end under the compiler.
                thread = threading.Thread(target=self._run, name="compile", daemon=False)
                self._threads.append(thread)
                self._working += 1
                thread.start()

    def wait(self) -> None:
        """Waits until every added shape is compiled or cancelled. A failed shape raises at its first use."""
        for thread in list(self._threads):
            thread.join()

    def cancel(self) -> None:
        """Begins no further shape; a shape that is compiled now goes on, without a wait for it."""
        with self._lock:
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                shape = self._waiting.popleft()
            try:
                self._programs.get(shape)
            except Failure as failure:
                log.warning("%s", failure.reason)
            except Exception:
                log.exception("Failed to compile batches of %d x %d tokens ahead", *shape)
