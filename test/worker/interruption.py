"""Interruptions of an extraction: a flush after a number of samples."""

import pytest

from gleaner_worker.extract.state import ExtractionState

PARTIALS = "partials/my-run/tpu_7/"


@pytest.fixture
def clean(storage):
    """Removes everything but the streams."""
    return lambda: storage.clear("activations/", "partials/")


class Interruption:
    """Counts computed samples, and requests a flush when their number is `samples`."""

    def __init__(self, monkeypatch, samples=10**9):
        from gleaner_worker.extract import extract as extract_module  # imports JAX, and fast tests need no JAX

        self.control, self.done, self.shards, self.outcome = ExtractionState(), 0, set(), ""
        put_sample = extract_module.put_sample

        def counting(*arguments):
            put_sample(*arguments)
            self.done += 1
            self.shards.add(arguments[0].plan.number)
            if self.done == samples:
                self.control.request("flush")

        monkeypatch.setattr(extract_module, "put_sample", counting)


@pytest.fixture
def interrupted(extract, monkeypatch):
    """interrupted(stream, samples, **spec) -> the interruption of an extraction, and its outcome."""

    def run(stream, samples=10**9, **spec):
        with monkeypatch.context() as patch:
            interruption = Interruption(patch, samples)
            interruption.outcome = extract(stream, interruption.control, **spec)
        return interruption

    return run
