"""Waits for the items of a thread."""

import threading
from contextlib import closing

import pytest

from gleaner_worker import waits
from gleaner_worker.failures import LeaseLost
from gleaner_worker.waits import wait_for_each
from waiting import HANG_S, until


def never():
    pass


def test_items_and_then_an_error_arrive_in_order():
    def items():
        yield from range(10)
        raise ValueError("broken")

    received = []
    with pytest.raises(ValueError, match="broken"):
        for item in wait_for_each(items, HANG_S, never):
            received.append(item)
    assert received == list(range(10))
    assert list(wait_for_each(lambda: range(10), HANG_S, never)) == received


def test_an_item_that_takes_too_long_is_a_timeout_error():
    release = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        list(wait_for_each(lambda: [release.wait(HANG_S)], 0.1, never))
    release.set()


def test_an_error_of_the_check_ends_the_wait_for_an_item():
    release, checks = threading.Event(), iter([None, None, LeaseLost])

    def check():
        if error := next(checks):
            raise error

    with pytest.raises(LeaseLost):
        list(wait_for_each(lambda: [release.wait(HANG_S)], HANG_S, check))
    release.set()


def test_a_close_ends_the_thread_and_closes_its_items():
    closed, made = threading.Event(), []

    def items():
        try:
            while True:
                made.append(0)
                yield 0
        finally:
            closed.set()

    with closing(wait_for_each(items, HANG_S, never)) as waited:
        next(waited)
        until(lambda: len(made) > 1 + waits._ITEMS_AHEAD)  # the thread has filled the queue, and waits for room
    assert closed.wait(HANG_S)
