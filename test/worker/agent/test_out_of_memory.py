"""Steps that need more memory than their plan: the next layout is tried once."""

from types import SimpleNamespace

import pytest

from build import fails
from gleaner_worker.agent import stream_work
from gleaner_worker.agent.stream_work import StreamWork
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import OutOfMemory


def test_layouts_that_ran_out_of_memory_are_skipped_but_for_the_last(monkeypatch):
    from gleaner_worker.model import model

    monkeypatch.setattr(model, "layouts", lambda *_: [SimpleNamespace(model=each) for each in (1, 2, 4)])
    monkeypatch.setattr(model, "weight_bytes", lambda *_: 0)
    monkeypatch.setattr(model, "compile_rows", lambda *_: SimpleNamespace(in_flight=2))
    plan = SimpleNamespace(capture=SimpleNamespace(config=None), shape=None, tuning=None, rules=None)
    chosen = [model.choose_program(plan, {}, None, [], "a model", skipped)[1].model for skipped in range(4)]
    assert chosen == [1, 2, 4, 4]


@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (1, 2), (2, 2)])
def test_a_stream_begins_again_once_with_the_next_layout(monkeypatch, tmp_path, caplog, failures, tries):
    work = SimpleNamespace(run="my-run", stream="000", epoch=1, spec="a spec")
    own = object.__new__(StreamWork)
    own.identity, own.out_of_memory, own.loaded_for = SimpleNamespace(home=str(tmp_path)), None, None
    own.open_bucket = lambda lease: SimpleNamespace(checked=lambda check: None)
    state, begun = ExtractionState(), []

    def extract(*_):
        begun.append((own.out_of_memory is not None, state.samples_done))
        state.add_done(5, 50)
        if len(begun) <= failures:
            raise OutOfMemory("infrastructure", "Failed to compute a step: RESOURCE_EXHAUSTED")
        return "completed"

    monkeypatch.setattr(stream_work, "parse_work", lambda *_: work)
    monkeypatch.setattr(own, "_extract", extract)
    if failures == 2:
        with fails("infrastructure", "RESOURCE_EXHAUSTED"):
            own.run({}, {}, state)
    else:
        assert own.run({}, {}, state) == "completed"
    assert begun == [(number > 0, 0) for number in range(tries)]
    assert ("on more chips" in caplog.text) == (failures > 0)
