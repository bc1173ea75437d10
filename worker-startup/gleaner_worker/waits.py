"""Waits that a drain or a lost lease ends."""

import time
from collections.abc import Callable

_CHECK_EVERY_S = 0.2


def wait(seconds: float, check: Callable[[], None]) -> None:
    """Sleeps for `seconds`. Calls `check` during the wait, which may raise."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _CHECK_EVERY_S))
        check()
