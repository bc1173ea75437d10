"""Programs that are compiled ahead: each shape once, in the order in which it is added."""

import threading

import pytest

from gleaner_worker.failures import Failure
from gleaner_worker.model.warm_up import Programs, WarmUp

pytestmark = pytest.mark.slow


def test_a_shape_is_compiled_once_for_any_number_of_threads():
    begun, go = [], threading.Event()

    def compile_shape(shape):
        begun.append(shape)
        go.wait(10)
        return f"program {shape}"

    programs = Programs(compile_shape)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(programs.get((1, 32)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert not programs.is_ready((1, 32))
    go.set()
    for thread in threads:
        thread.join()
    assert begun == [(1, 32)] and answers == ["program (1, 32)"] * 4 and programs.is_ready((1, 32))


def test_a_failed_shape_fails_every_use_and_no_other_shape():
    def compile_shape(shape):
        if shape[1] == 64:
            raise Failure("model", "Failed to fit a batch")
        return "program"

    programs = Programs(compile_shape)
    WarmUp(programs, [(1, 32), (1, 64), (1, 128)]).wait()
    assert programs.get((1, 32)) == programs.get((1, 128)) == "program"
    for _ in range(2):
        with pytest.raises(Failure, match="Failed to fit a batch"):
            programs.get((1, 64))


def test_a_cancelled_warm_up_begins_no_further_shape():
    begun, go = [], threading.Event()

    def compile_shape(shape):
        begun.append(shape)
        go.wait(10)

    shapes = [(1, 32 * n) for n in range(1, 40)]
    warm_up = WarmUp(Programs(compile_shape), shapes)
    warm_up.cancel()
    go.set()
    warm_up.wait()
    assert len(begun) <= 4


def test_shapes_are_compiled_once_in_the_order_of_their_addition(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    begun, go = [], threading.Event()

    def compile_shape(shape):
        begun.append(shape)
        go.wait(60)

    programs = Programs(compile_shape)
    warm_up = WarmUp(programs, [(1, 96), (1, 32), (1, 96)])
    warm_up.add([(1, 64), (1, 32)])
    go.set()
    warm_up.wait()
    warm_up.add([(1, 96), (1, 128)])  # after the end of its thread
    warm_up.wait()
    assert begun == [(1, 96), (1, 32), (1, 64), (1, 128)]
    WarmUp(programs, begun).wait()
    assert len(begun) == 4
