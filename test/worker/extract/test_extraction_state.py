"""The rate of an extraction, from the samples of the last 30 s."""

import time

from gleaner_worker.extract.state import ExtractionState


def test_the_rate_counts_the_waits_between_bursts_of_samples(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    state = ExtractionState()
    state.add_done(1, 10)
    for _ in range(3):
        now += 5
        for _ in range(100):
            state.add_done(1, 10)
    now += 5
    assert state.progress()["tokens_per_s"] == 3000 / 20
    now += 30
    assert state.progress()["tokens_per_s"] is None
