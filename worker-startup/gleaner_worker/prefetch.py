"""Making the next item while this one is used."""

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yields what `items` yields, one ahead, from a thread; an error there is raised here, in its place."""
    ahead: queue.Queue = queue.Queue(maxsize=1)
    closed = threading.Event()

    def put(entry: object) -> bool:
        while not closed.is_set():
            try:
                ahead.put(entry, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def run() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((_END, None))
        except BaseException as error:  # handed over, not swallowed
            put((_END, error))

    thread = threading.Thread(target=run, name="plan", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ahead.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        closed.set()
        thread.join()
