"""Errors in a stage of an extraction: they end all stages at once."""

import threading

import pytest

from build import BUCKET, SMALL, fails, outputs, text_lines
from gleaner_worker.extract import extract as extract_module
from gleaner_worker.extract.state import ExtractionState
from pipeline_probes import PREFIX
from waiting import HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_thread_is_left")]


def broken(*_arguments, **_more):
    raise RuntimeError("broken")


STAGES = "read_documents make_samples plan_shards start_shard Partials.restore put_samples encode_shard Uploader.store"


@pytest.mark.sample(3)
@pytest.mark.parametrize("stage", STAGES.split())
def test_an_error_in_any_stage_ends_the_extraction_at_once(storage, extract, monkeypatch, stage):
    target, _, method = stage.partition(".")
    owner = getattr(extract_module, target) if method else extract_module
    real, calls = getattr(owner, method or target), []

    def third_time(*arguments, **more):
        calls.append(stage)
        return broken() if len(calls) == 3 else real(*arguments, **more)

    def from_the_start(*arguments, **more):
        for number, item in enumerate(real(*arguments, **more)):
            yield item
            if number == 1:
                broken()

    generators = ("read_documents", "make_samples", "plan_shards")
    monkeypatch.setattr(owner, method or target, from_the_start if stage in generators else third_time)
    spec = {"shard_size_gb": SMALL}
    control = ExtractionState()
    with pytest.raises(RuntimeError, match="broken"):
        extract(text_lines(2000), control, **spec)
    assert control.progress()["samples_done"] < 500
    assert "metadata.json" not in outputs(storage)


def test_a_failed_upload_ends_the_computation(storage, extract):
    storage.faults = lambda request: 403 if "/upload/" in request and storage.names(BUCKET, PREFIX) else None
    spec = {"shard_size_gb": SMALL}
    control = ExtractionState()
    with fails("infrastructure", "Failed to create .*403"):
        extract(text_lines(2000), control, **spec)
    assert control.progress()["samples_done"] < 1500
    assert 1 <= len(outputs(storage)) <= 4


def test_an_error_ends_a_running_upload(extract, monkeypatch):
    """The upload of a large shard on a slow network ends when a stage has failed."""
    began, asked = threading.Event(), []

    def endless(self, shard, pipeline):
        if shard.plan.number == 1:
            while True:
                began.set()
                asked.append(self._bucket.check())  # as between the parts of an upload
        began.wait(HANG_S)
        raise RuntimeError("broken")

    monkeypatch.setattr(extract_module.Uploader, "store", endless)
    with pytest.raises(RuntimeError, match="broken"):
        extract(text_lines(100), shard_size_gb=SMALL)
    assert asked
