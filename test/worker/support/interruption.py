"""Interruptions of an extraction: a flush after a number of samples."""

import pytest

from gleaner_worker.extract.state import ExtractionState

PARTIALS = "partials/my-run/tpu_7/"


@pytest.fixture
def clean(storage):
    """Removes everything but the streams."""
    return lambda: storage.clear("activations/", "partials/")


class Interruption:
    """Counts computed samples, and requests a flush when they are `samples` or more."""

    def __init__(self, monkeypatch, samples=10**9):
        from gleaner_worker.extract import extract as extract_module  # imports JAX, and fast tests need no JAX

        self.control, self.done, self.shards, self.outcome = ExtractionState(), 0, set(), ""
        put_samples = extract_module.put_samples

        def counting(shard, positions, *row):
            put_samples(shard, positions, *row)
            self.done += len(positions)
            self.shards.add(shard.plan.number)
            if self.done >= samples:
                self.control.request("flush")

        monkeypatch.setattr(extract_module, "put_samples", counting)


@pytest.fixture
def interrupted(extract, monkeypatch):
    """interrupted(stream, samples, **spec) -> the interruption of an extraction, and its outcome."""

    def run(stream, samples=10**9, **spec):
        with monkeypatch.context() as patch:
            interruption = Interruption(patch, samples)
            interruption.outcome = extract(stream, interruption.control, **spec)
        return interruption

    return run
