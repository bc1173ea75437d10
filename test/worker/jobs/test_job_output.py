"""The output of a job: parts in the bucket, in order, while it runs."""

import threading

import pytest

from build import BUCKET, bucket
from gleaner_worker.failures import LeaseLost
from gleaner_worker.jobs import output as output_module
from gleaner_worker.jobs.output import OutputParts
from waiting import HANG_S, until


def parts(storage):
    return [storage.data(BUCKET, name) for name in storage.names(BUCKET, "out/")]


def test_parts_are_stored_in_order_while_the_process_runs(storage):
    output = OutputParts(bucket(), "out", every_s=0.1)
    output.write(b"one\n")
    until(lambda: parts(storage))
    assert storage.names(BUCKET, "out/") == ["out/000001.txt"]
    output.write(b"two\n")
    output.close()
    assert parts(storage) == [b"one\n", b"two\n"]


def test_a_job_without_output_stores_no_object(storage):
    OutputParts(bucket(), "out").close()
    assert parts(storage) == []


def test_each_megabyte_of_output_is_stored_at_once_and_the_rest_at_the_end(storage):
    output = OutputParts(bucket(), "out", every_s=1000)
    output.write(b"x" * ((2 << 20) + 5))
    output.close()
    assert [len(part) for part in parts(storage)] == [1 << 20, 1 << 20, 5]


def test_output_that_must_hurry_waits_for_no_more(storage):
    output = OutputParts(bucket(), "out", every_s=1000)
    for line in (b"one\n", b"two\n"):
        output.write(line)
        output.hurry(HANG_S)
        output.hurry(0)
    assert parts(storage) == [b"one\n", b"two\n"]
    output.close()


def test_the_first_bytes_and_the_last_lines_of_a_long_output_are_kept(storage, monkeypatch):
    monkeypatch.setattr(output_module, "_LAST_BYTES", 20)
    output = OutputParts(bucket(), "out", max_bytes=10)
    for number in range(1000):
        output.write(b"%07d\n" % number)
    output.close(end=b"the end\n")
    assert b"".join(parts(storage)) == (
        b"0000000\n00\n[gleaner] 7982 bytes of output are left out here: "
        b"the output keeps its first 10 bytes and its last 16\n0000999\nthe end\n"
    )


def test_an_output_whose_rest_fits_into_the_last_bytes_is_whole(storage, monkeypatch):
    monkeypatch.setattr(output_module, "_LAST_BYTES", 20)
    output = OutputParts(bucket(), "out", max_bytes=10)
    for _ in range(3):
        output.write(b"123456789\n")
    output.close()
    assert b"".join(parts(storage)) == b"123456789\n" * 3


def test_a_failed_upload_is_repeated_and_every_part_is_stored_once(storage):
    faults = [503, ("after", 503), 503]
    storage.faults = lambda request: faults.pop() if faults and request.startswith("POST") else None
    output = OutputParts(bucket(), "out", every_s=0.05)
    output.write(b"one\n")
    until(lambda: not faults)
    output.write(b"two\n")
    output.close()
    assert b"".join(parts(storage)) == b"one\ntwo\n" and faults == []


def test_a_writer_waits_for_a_slow_bucket_in_bounded_memory_and_nothing_is_left_out(storage):
    gate, written = threading.Event(), []
    storage.before_create = lambda name: gate.wait(HANG_S)
    output = OutputParts(bucket(), "out", every_s=0.01)

    def write():
        for number in range(25):
            output.write(bytes([number]) * (1 << 20))
            written.append(number)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    until(lambda: len(output._waiting) == 16 << 20)
    writer.join(0.2)
    assert writer.is_alive() and len(written) <= 18  # 16 MiB wait, one part is being stored, one was the first
    gate.set()
    writer.join(HANG_S)
    output.close()
    assert b"".join(parts(storage)) == b"".join(bytes([number]) * (1 << 20) for number in range(25))


@pytest.mark.parametrize("how", ["a close", "a lost lease"])
def test_a_writer_that_waits_goes_on_after(storage, how):
    gate, lost = threading.Event(), threading.Event()
    storage.before_create = lambda name: gate.wait(HANG_S)

    def check():
        if lost.is_set():
            raise LeaseLost

    output = OutputParts(bucket(check), "out", every_s=0.01)
    writer = threading.Thread(target=lambda: [output.write(bytes(1 << 20)) for _ in range(25)], daemon=True)
    writer.start()
    until(lambda: len(output._waiting) >= 16 << 20)
    if how == "a close":
        output.close(0)
    lost.set()
    gate.set()
    writer.join(HANG_S)
    assert not writer.is_alive()


def test_a_lost_lease_ends_the_uploads_of_output(storage):
    lost = threading.Event()

    def check():
        if lost.is_set():
            raise LeaseLost

    output = OutputParts(bucket(check), "out", every_s=0.05)
    lost.set()
    output.write(b"one\n")
    output.close()
    assert parts(storage) == []


def test_a_refused_upload_logs_that_its_part_is_lost(storage, caplog):
    storage.faults = lambda request: 400 if request.startswith("POST") else None
    output = OutputParts(bucket(), "out", every_s=0.05)
    output.write(b"one\n")
    output.close()
    assert "the output of this part is lost" in caplog.text
