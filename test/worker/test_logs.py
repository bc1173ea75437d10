"""The agent's log: printed to stderr, and shipped to the bucket even when stderr is closed."""

import io
import json
import logging
import os
import sys

import pytest

from build import BUCKET, bucket
from gleaner_worker.agent.logs import LogShipper


def say(shipper, text):
    shipper.handle(logging.LogRecord("a", logging.INFO, __file__, 1, text, None, None))


def shipped(shipper, storage):
    shipper.ship(bucket(), "a.log")
    return [json.loads(line)["message"] for line in storage.data(BUCKET, "a.log").splitlines()]


def a_pipe_without_a_reader():
    reading, writing = os.pipe()
    os.close(reading)
    return io.TextIOWrapper(os.fdopen(writing, "wb", buffering=0), write_through=True)


def a_closed_file():
    file = io.StringIO()
    file.close()
    return file


@pytest.mark.parametrize("broken_stderr", [a_pipe_without_a_reader, a_closed_file])
def test_a_log_line_is_shipped_when_stderr_is_closed(storage, monkeypatch, broken_stderr):
    shipper = LogShipper()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", broken_stderr())
        say(shipper, "first")
        say(shipper, "second")
        storage.faults = lambda request: 503
        shipper.ship(bucket(), "a.log")  # reports its failure
    storage.faults = lambda request: None
    assert shipped(shipper, storage) == ["first", "second"]


def test_a_long_log_line_is_cut_on_stderr_and_shipped_whole(storage, capsys):
    shipper = LogShipper()
    say(shipper, "é" * 100_000)
    assert 16_384 < len(capsys.readouterr().err.encode()) < 65_536
    assert shipped(shipper, storage) == ["é" * 100_000]
