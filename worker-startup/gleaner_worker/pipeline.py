"""Stages on threads of their own, each a few items ahead of the next; the first error of any stops them all."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

# How soon a stage that waits sees what is not told to it, such as a lease that was lost.
_POLL_S = 0.1


class Stopped(Exception):
    """Another stage failed: this one has nothing left to do."""


class Pipeline:
    """Use as `with Pipeline(check) as pipeline:`; leaving it stops whatever stages still run, joins every thread and
    raises the first error, once, as it was raised.

    check: called wherever a stage hands on or waits; what it raises (LeaseLost) stops the pipeline like any error.
    """

    def __init__(self, check: Callable[[], None] = lambda: None):
        self._changed = threading.Condition()
        self._check = check
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._error: BaseException | None = None

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stop(error)
        for thread in self._threads:
            thread.join()
        if self._error is not None and self._error is not error:
            raise self._error

    def stage(self, name: str, items: Generator[T, None, None], ahead: int) -> "Handover[T]":
        """Iterates `items` on a thread, at most `ahead` items before whoever takes them from what is returned."""
        handover: Handover[T] = Handover(self, ahead)

        def run() -> None:
            with closing(items):
                for item in items:
                    handover._put(item)
                    del item  # held by nobody but the queue while the next is made
            handover._end()

        self._start(name, run)
        return handover

    def each(
        self,
        name: str,
        items: "Handover[T]",
        call: Callable[[T], None],
        threads: int,
        then: Callable[[], None] = lambda: None,
    ) -> Callable[[], bool]:
        """Calls `call` for every item, on `threads` threads at once; returns what tells whether that is done.

        then: called after each, when the item is held here no more.
        """
        working = set(range(threads))

        def run(number: int) -> None:
            for item in items:
                call(item)
                del item
                then()
            with self._changed:
                working.remove(number)
                self._changed.notify_all()

        for number in range(threads):
            self._start(f"{name}-{number}", partial(run, number))
        return lambda: not working

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Returns when is_true(), which is asked again after every change, and now and then.

        Raises Stopped when a stage failed, and whatever `check` raises.
        """
        with self._changed:
            while True:
                if self._stopping:
                    raise Stopped
                self._check()
                if is_true():
                    return
                self._changed.wait(_POLL_S)

    def notify(self) -> None:
        """Says that something which others wait for may have changed."""
        with self._changed:
            self._changed.notify_all()

    def check(self) -> None:
        """Raises Stopped, or what `check` raises; for work that takes long between two items."""
        if self._stopping:
            raise Stopped
        self._check()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                run()
            except Stopped:
                pass
            except BaseException as error:  # raised again by __exit__
                self._stop(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _stop(self, error: BaseException | None) -> None:
        with self._changed:
            if not self._stopping and not isinstance(error, Stopped):
                self._error = error
            self._stopping = True
            self._changed.notify_all()


class Handover(Generic[T], Iterator[T]):
    """What one stage has made and the next has not taken yet; any number of threads may take from it."""

    def __init__(self, pipeline: Pipeline, size: int):
        self._pipeline = pipeline
        self._size = size
        self._items: deque[T] = deque()
        self.has_ended = False  # nothing more will be put

    def __next__(self) -> T:
        with self._pipeline._changed:
            self._pipeline.wait_until(lambda: bool(self._items) or self.has_ended)
            if not self._items:
                raise StopIteration
            self._pipeline._changed.notify_all()
            return self._items.popleft()

    def _put(self, item: T) -> None:
        with self._pipeline._changed:
            self._pipeline.wait_until(lambda: len(self._items) < self._size)
            self._items.append(item)
            self._pipeline._changed.notify_all()

    def _end(self) -> None:
        with self._pipeline._changed:
            self.has_ended = True
            self._pipeline._changed.notify_all()
