"""Interruptions of an extraction: a flush after a number of batches."""

import re

import pytest

from gleaner_worker import extract as extract_module
from gleaner_worker.control import Control

PARTIALS = "partials/my-run/tpu_7/"


@pytest.fixture
def clean(storage):
    """Removes everything but the streams."""
    return lambda: storage.clear("activations/", "partials/")


class Interruption:
    """Counts batches, and asks for a flush after so many."""

    def __init__(self, monkeypatch, batches=10**9):
        self.control, self.done, self.shards = Control(), 0, set()
        put_batch = extract_module.put_batch

        def counting(*arguments):
            put_batch(*arguments)
            self.done += 1
            self.shards.add(arguments[0].plan.number)
            if self.done == batches:
                self.control.request("flush")

        monkeypatch.setattr(extract_module, "put_batch", counting)


def batches_of(name):
    shard, first, last = re.fullmatch(r".*/shard_(\d+)\.e\d+\.b(\d+)-(\d+)\.safetensors", name).groups()
    return [(shard, batch) for batch in range(int(first), int(last) + 1)]
