"""Extractions of a stream, and their rejects: `extract` is the fixture."""

import json

import pytest

from build import a_stream, a_work, outputs, run_extract


@pytest.fixture
def extract(storage, tmp_path, tiny_models):
    """extract(stream, control, **spec) -> the outcome. stream: lines to store, or the resource of a stored stream."""

    def run(stream, control=None, settings=None, model=None, epoch=1, **spec):
        resource = stream if isinstance(stream, dict) else a_stream(storage, stream)
        work = a_work(resource, epoch=epoch, **spec)
        return run_extract(work, model or tiny_models(**spec), str(tmp_path), control, settings)

    return run


def rejects(storage):
    text = outputs(storage).get("rejects.jsonl", b"").decode()
    return [json.loads(line) for line in text.splitlines()]
