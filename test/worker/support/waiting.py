"""Waits for a state. The limit only ends a test that hangs."""

import time

HANG_S = 600


def until(is_true):
    end = time.monotonic() + HANG_S
    while not is_true():
        assert time.monotonic() < end, f"the condition is still false after {HANG_S} s"
        time.sleep(0.01)
