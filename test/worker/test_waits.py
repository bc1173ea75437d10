"""Waits for the items of a thread."""

import threading
import time
from contextlib import closing

import pytest

from gleaner_worker.failures import LeaseLost
from gleaner_worker.waits import wait_for_each


def never():
    pass


def test_items_and_then_an_error_arrive_in_order():
    def items():
        yield from range(10)
        raise ValueError("broken")

    received = []
    with pytest.raises(ValueError, match="broken"):
        for item in wait_for_each(items, 10.0, never):
            received.append(item)
    assert received == list(range(10))
    assert list(wait_for_each(lambda: range(10), 10.0, never)) == received


def test_an_item_that_takes_too_long_is_a_timeout_error():
    release = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        list(wait_for_each(lambda: [release.wait(10)], 0.1, never))
    release.set()


def test_an_error_of_the_check_ends_the_wait_for_an_item():
    release, began = threading.Event(), time.monotonic()

    def check():
        if time.monotonic() - began > 0.1:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        list(wait_for_each(lambda: [release.wait(10)], 10.0, check))
    assert time.monotonic() - began < 2
    release.set()


def test_a_close_ends_the_thread_and_closes_its_items():
    closed = threading.Event()

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    with closing(wait_for_each(items, 10.0, never)) as waited:
        next(waited)
        time.sleep(0.05)  # the thread fills the queue, and waits for room
    assert closed.wait(5)
