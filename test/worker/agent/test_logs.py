"""The agent's log: printed to stderr, and shipped to the bucket even when stderr is closed."""

import io
import json
import logging
import os
import sys
import time

import pytest

from build import BUCKET, bucket
from gleaner_worker.agent import logs
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
def test_a_log_line_is_shipped_when_stderr_is_closed(storage, tmp_path, monkeypatch, broken_stderr):
    shipper = LogShipper(str(tmp_path / "host.log"))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", broken_stderr())
        say(shipper, "first")
        say(shipper, "second")
        storage.faults = lambda request: 503
        shipper.ship(bucket(), "a.log")  # reports its failure
    storage.faults = lambda request: None
    assert shipped(shipper, storage) == ["first", "second"]


def test_a_long_log_line_is_cut_on_stderr_and_shipped_whole(storage, tmp_path, capsys):
    shipper = LogShipper(str(tmp_path / "host.log"))
    say(shipper, "é" * 100_000)
    assert 16_384 < len(capsys.readouterr().err.encode()) < 65_536
    assert shipped(shipper, storage) == ["é" * 100_000]


def test_a_log_has_the_lines_of_the_end_of_a_work_long_before_its_next_copy(storage, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_SHIP_GAP_S", 0.01)
    shipper = LogShipper(str(tmp_path / "host.log"))
    shipper.ship(bucket(), "a.log")
    shipper.start(bucket(), "a.log")
    for text in ("Leased", "Releasing"):
        say(shipper, text)
        shipper.ship_soon()
        deadline = time.monotonic() + logs._SHIP_EVERY_S / 2
        while text.encode() not in storage.data(BUCKET, "a.log") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert text.encode() in storage.data(BUCKET, "a.log")


def test_the_log_of_a_host_has_the_lines_before_a_restart_and_stays_short(storage, tmp_path, monkeypatch):
    path = tmp_path / "host.log"
    path.write_text("a boot\n")
    say(LogShipper(str(path)), "first")
    monkeypatch.setattr(logs, "_MOST_LINES_ON_DISK", 4)
    shipper = LogShipper(str(path))
    for text in ("second", "third", "fourth"):
        say(shipper, text)
    shipper.ship(bucket(), "a.log")
    kept = storage.data(BUCKET, "a.log").decode().splitlines()
    assert kept[0] == "a boot" and [json.loads(line)["message"] for line in kept[1:]] == [
        "first",
        "second",
        "third",
        "fourth",
    ]
    assert path.read_text().splitlines() == kept
    monkeypatch.setattr(logs, "_KEEP_LINES", 2)
    shipper = LogShipper(str(path))
    say(shipper, "fifth")
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()[-2:]] == ["fourth", "fifth"]
    assert path.stat().st_mode & 0o777 == 0o644  # the mode of an existing file stays


def test_a_log_that_cannot_be_written_stops_nothing(storage, tmp_path):
    shipper = LogShipper(str(tmp_path / "no-folder" / "host.log"))
    say(shipper, "first")
    assert shipped(shipper, storage) == ["first"]
