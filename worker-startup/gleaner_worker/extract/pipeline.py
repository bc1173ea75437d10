"""Stages on threads of their own, each a few items ahead of the next; the first error in any stage stops all."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

# The longest time until a waiting stage sees a change without a notice, such as a lost lease.
_POLL_S = 0.1


class Stopped(Exception):
    """Another stage has failed, so this stage ends."""


class Pipeline:
    """Use as `with Pipeline(check) as pipeline:`. The end of the block stops every stage, joins every thread and raises
    the first error, once, unchanged.

    check: called wherever a stage hands over or waits; an error of `check` (LeaseLost) stops the pipeline like any
    error.
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
        """Iterates `items` on a thread, at most `ahead` items before the consumer of the returned handover."""
        handover: Handover[T] = Handover(self, ahead)

        def run() -> None:
            with closing(items):
                for item in items:
                    handover._put(item)
                    del item  # only the queue holds the item while the generator makes the next one
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
        leaves: Callable[[], bool] = lambda: False,
    ) -> Callable[[], bool]:
        """Calls `call` for every item, on `threads` threads at once; returns a function that is true when all are done.

        then: called after each item, when this stage holds the item no more. leaves: whether the thread takes no
        further item.
        """
        working = set(range(threads))

        def run(number: int) -> None:
            for item in items:
                call(item)
                del item
                then()
                if leaves():
                    break
            with self._changed:
                working.remove(number)
                self._changed.notify_all()

        for number in range(threads):
            self._start(f"{name}-{number}", partial(run, number))
        return lambda: not working

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Returns when is_true(), which is called after every change and every _POLL_S.

        Raises Stopped when a stage has failed, and every error of `check`.
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
        """Tells the waiting stages that their condition may have changed."""
        with self._changed:
            self._changed.notify_all()

    def check(self) -> None:
        """Raises Stopped, or an error of `check`; for long work between two items."""
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
    """Items between two stages; any number of threads may take from it."""

    def __init__(self, pipeline: Pipeline, size: int):
        self._pipeline = pipeline
        self._size = size
        self._items: deque[T] = deque()
        self.has_ended = False  # no further item follows

    @property
    def is_ready(self) -> bool:
        """Whether the next item, or the end, is there."""
        return bool(self._items) or self.has_ended

    def __next__(self) -> T:
        with self._pipeline._changed:
            self._pipeline.wait_until(lambda: self.is_ready)
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
