"""Waits that a drain or a lost lease ends."""

import threading
import time
from collections.abc import Callable, Generator, Iterable
from queue import Empty, Queue
from typing import TypeVar

_CHECK_EVERY_S = 0.2
_ITEMS_AHEAD = 2
T = TypeVar("T")


def wait(seconds: float, check: Callable[[], None]) -> None:
    """Sleeps for `seconds`. Calls `check` during the wait, which may raise."""
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        time.sleep(min(remaining, _CHECK_EVERY_S))
        check()


def wait_for_each(
    items: Callable[[], Iterable[T]], each_s: float, check: Callable[[], None]
) -> Generator[T, None, None]:
    """Yields items(), which a thread iterates. Calls `check` before each item and during the waits; it may raise.

    Raises TimeoutError when an item takes longer than `each_s`. After an error or a close, the thread ends at its next
    item, and the process may end before. So `items` must not write anything.
    """
    queue: Queue[tuple[T] | BaseException | None] = Queue(_ITEMS_AHEAD)
    is_closed = threading.Event()

    def fill() -> None:
        try:
            for item in items():
                queue.put((item,))
                if is_closed.is_set():
                    return
        except BaseException as error:
            queue.put(error)
        else:
            queue.put(None)

    threading.Thread(target=fill, daemon=True).start()
    try:
        give_up = time.monotonic() + each_s
        while True:
            check()
            try:
                entry = queue.get(timeout=_CHECK_EVERY_S)
            except Empty:
                if time.monotonic() > give_up:
                    raise TimeoutError(f"no answer within {each_s:.0f} s") from None
                continue
            if entry is None:
                return
            if isinstance(entry, BaseException):
                raise entry
            yield entry[0]
            give_up = time.monotonic() + each_s
    finally:
        is_closed.set()
        while not queue.empty():  # a full queue would hold the thread
            queue.get()
