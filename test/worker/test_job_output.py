"""The output of a job: parts in the bucket, in order, while it runs."""

import threading

from build import BUCKET, bucket
from gleaner_worker.failures import LeaseLost
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


def test_output_over_the_limit_is_left_out_with_one_line_at_the_end(storage):
    output = OutputParts(bucket(), "out", max_bytes=10)
    for _ in range(1000):
        output.write(b"12345678")
    output.close()
    assert b"".join(parts(storage)) == (
        b"1234567812\n[gleaner] 7990 bytes of output are left out here: the limit is 10 bytes\n"
    )


def test_a_failed_upload_is_repeated_and_every_part_is_stored_once(storage):
    faults = [503, ("after", 503), 503]
    storage.faults = lambda request: faults.pop() if faults and request.startswith("POST") else None
    output = OutputParts(bucket(), "out", every_s=0.05)
    output.write(b"one\n")
    until(lambda: not faults)
    output.write(b"two\n")
    output.close()
    assert b"".join(parts(storage)) == b"one\ntwo\n" and faults == []


def test_output_has_bounded_memory_and_never_blocks_while_uploads_hang(storage):
    gate, opened = threading.Event(), []
    storage.before_create = lambda name: opened.append(gate.wait(HANG_S))
    output = OutputParts(bucket(), "out", every_s=0.01, max_bytes=1 << 30)
    for _ in range(100):
        output.write(bytes(1 << 20))
    gate.set()
    output.close()
    assert all(opened)  # no upload ended before the last write
    total = sum(map(len, parts(storage)))
    assert 16 << 20 <= total < 20 << 20
    assert parts(storage)[-1].endswith(b"bytes of output are left out here: the bucket was slower than the process\n")


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
