"""The stages of an extraction: order, bounds, and one error that ends them all."""

import threading

import pytest

from gleaner_worker.extract.pipeline import Pipeline, Stopped
from gleaner_worker.failures import LeaseLost
from waiting import HANG_S, until


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def numbers(count, made=None):
    for number in range(count):
        if made is not None:
            made.append(number)
        yield number


def through(items, call):
    for item in items:
        yield call(item)


def test_all_items_go_through_every_stage_in_order():
    done = []
    with Pipeline() as pipeline:
        doubled = pipeline.stage("double", through(pipeline.stage("make", numbers(100), 1), lambda x: 2 * x), 3)
        pipeline.wait_until(pipeline.each("take", doubled, done.append, threads=1))
    assert done == [2 * number for number in range(100)]


def test_each_item_is_taken_by_one_of_many_threads():
    done, meeting = [], threading.Barrier(4, timeout=HANG_S)

    def take(item):
        meeting.wait()  # four threads at once
        done.append(item)

    with Pipeline() as pipeline:
        pipeline.wait_until(pipeline.each("take", pipeline.stage("make", numbers(40), 2), take, threads=4))
    assert sorted(done) == list(range(40))


def test_a_stage_is_never_further_ahead_than_its_limit():
    made, taken = [], []
    with Pipeline() as pipeline:
        items = pipeline.stage("make", numbers(50, made), 3)
        for item in items:
            taken.append(item)
            until(lambda: len(made) >= min(50, len(taken) + 3 + 1))  # and the item that the stage holds
            assert len(made) - len(taken) <= 3 + 1
    assert taken == list(range(50))


def fail_at(number, error):
    def call(item):
        if item == number:
            raise error
        return item

    return call


@pytest.mark.parametrize("where", ["first", "middle", "last", "body"])
def test_an_error_in_any_stage_stops_all_stages_and_is_raised_once(where):
    error = ValueError(where)
    closed = []

    def endless():
        try:
            yield from numbers(10**12)
        finally:
            closed.append(True)

    def bad(name):
        return fail_at(5, error) if name == where else lambda item: item

    with pytest.raises(ValueError) as caught, Pipeline() as pipeline:
        first = pipeline.stage("first", through(pipeline.stage("source", endless(), 1), bad("first")), 1)
        middle = pipeline.stage("middle", through(first, bad("middle")), 1)
        is_done = pipeline.each("last", middle, bad("last"), threads=2)
        if where == "body":
            raise error
        pipeline.wait_until(is_done)
    assert caught.value is error
    assert closed == [True]


def test_of_several_errors_the_first_is_raised():
    first, second = ValueError("first"), ValueError("second")

    def late(item):
        try:
            pipeline.wait_until(lambda: False)
        except Stopped:
            raise second from None

    with pytest.raises(ValueError) as caught, Pipeline() as pipeline:
        pipeline.each("late", pipeline.stage("make", numbers(1), 1), late, threads=1)
        pipeline.each("early", pipeline.stage("make", numbers(1), 1), fail_at(0, first), threads=1)
        pipeline.wait_until(lambda: False)
    assert caught.value is first


@pytest.mark.parametrize("waiting", ["for an item", "for room", "for a condition"])
def test_a_lost_lease_ends_a_waiting_pipeline(waiting):
    lost = threading.Event()

    def check():
        if lost.is_set():
            raise LeaseLost

    def stuck():
        lost.wait()
        yield 1

    soon = threading.Timer(0.1, lost.set)
    soon.start()
    with pytest.raises(LeaseLost), Pipeline(check) as pipeline:
        if waiting == "for an item":
            next(pipeline.stage("make", stuck(), 1))
        elif waiting == "for room":
            pipeline.stage("make", numbers(10), 1)
        pipeline.wait_until(lambda: False)
    soon.join()  # the thread may still be ending


def test_an_early_end_of_the_block_leaves_no_thread():
    made = []
    with Pipeline() as pipeline:
        assert next(pipeline.stage("make", numbers(10**12, made), 1)) == 0
    assert len(made) < 5


class Big:
    """Counts its instances that are alive."""

    alive = 0

    def __init__(self):
        Big.alive += 1

    def __del__(self):
        Big.alive -= 1


def test_a_stage_frees_each_item_that_it_has_passed_on():
    def make():
        for _ in range(3):
            yield Big()
        pipeline.wait_until(lambda: taken.is_set())

    taken = threading.Event()
    with Pipeline() as pipeline:
        items = pipeline.stage("make", make(), 1)
        for _ in range(3):
            next(items)
        until(lambda: Big.alive == 0)
        taken.set()


def test_the_callback_after_an_item_runs_when_the_stage_has_freed_the_item():
    def make():
        yield Big()

    freed = []
    with Pipeline() as pipeline:
        items = pipeline.stage("make", make(), 1)

        def then():
            until(lambda: Big.alive == 0)  # the stage may be about to free it
            freed.append(True)

        pipeline.wait_until(pipeline.each("take", items, lambda _: None, 1, then))
    assert freed == [True]
