"""Concurrent stages of an extraction: memory, order and gaps."""

import json
import re
import threading
from types import SimpleNamespace

import pytest

from build import BUCKET, SMALL, a_stream, fails, outputs, text_lines
from gleaner_worker.extract.shard_memory import most_shards
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.extract.upload import Uploader
from gleaner_worker.extract.upload_streams import FIRST
from gleaner_worker.storage.upload_content import BytesContent
from pipeline_probes import PREFIX, Alive
from waiting import HANG_S, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_thread_is_left")]


HELD = most_shards(0, 3, FIRST)  # a window of 1,024 tokens fills three shards of 400


@pytest.mark.sample(1)
@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst"])
def test_memory_holds_only_a_few_shards_with_a_slow_bucket(storage, extract, monkeypatch, file_format):
    spec = {"shard_size_gb": SMALL, "format": file_format}
    rows = Alive(monkeypatch, "start_shard", lambda shard: shard.rows["resid_post"])
    encoded = Alive(monkeypatch, "EncodedShard")
    control, counts = ExtractionState(), []

    def hang(name):
        """Blocks every upload until the extraction waits for uploads."""
        until(lambda: counts or control.phase == "uploading")
        if not counts:
            counts.append((rows.now(), encoded.now()))

    storage.before_create = hang
    assert extract(text_lines(260), control, **spec) == "completed"
    assert rows.all == encoded.all > 15
    # Plain shards are in memory until they are stored, packed shards until they are packed.
    plain, packed = counts[0]
    assert plain == HELD if file_format == "safetensors" else HELD <= plain + packed <= HELD + 1
    assert (rows.most <= HELD, encoded.most <= HELD) == (True, True)
    assert (rows.now(), encoded.now()) == (0, 0)


def test_memory_holds_fewer_large_shards_and_at_least_two_of_any_size(monkeypatch):
    memory = 64 << 30
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": memory // 4096, "SC_PAGE_SIZE": 4096}.get)
    assert [most_shards(size, 1, 4) for size in (0, 1 << 30, 8 << 30, 32 << 30, 1 << 40)] == [6, 6, 4, 2, 2]


def test_four_shards_upload_at_once_and_the_last_shard_uploads_alone(storage, extract):
    spec = {"shard_size_gb": SMALL}
    together, most, four = set(), [], threading.Condition()

    def meet(name):
        with four:
            together.add(name)
            most.append(set(together))
            four.notify_all()
            if "shard_" in name and max(map(len, most)) < 4:
                four.wait_for(lambda: max(map(len, most)) == 4, HANG_S)
            together.discard(name)

    storage.before_create = meet
    extract([*text_lines(200), "junk"], **spec)
    assert max(map(len, most)) == 4
    last = sorted(name for name in outputs(storage) if name.startswith("shard_"))[-1]
    for names in most:
        if names & {f"{PREFIX}{last}", f"{PREFIX}metadata.json", f"{PREFIX}rejects.jsonl"}:
            assert len(names) == 1


def test_the_last_shard_and_the_summary_wait_for_the_slowest_shard(storage, extract, monkeypatch):
    stream = a_stream(storage, [*text_lines(100), "junk"])
    extract(stream, shard_size_gb=SMALL)
    *others, last = sorted(name for name in outputs(storage) if name.startswith("shard_"))
    others.remove("shard_0002.safetensors")
    storage.clear("activations/")
    stored_before, waits, store = [], [], Uploader.store

    def note_waits(uploader, shard, pipeline):
        def wait_until(is_true):
            waits.append(shard.plan.number)
            pipeline.wait_until(is_true)

        store(uploader, shard, SimpleNamespace(wait_until=wait_until, notify=pipeline.notify))

    def slowly(name):
        if name.endswith("shard_0002.safetensors"):
            until(lambda: outputs(storage).keys() >= set(others) and (waits or last in outputs(storage)))
            stored_before.extend(outputs(storage))

    monkeypatch.setattr(Uploader, "store", note_waits)
    storage.before_create = slowly
    assert extract(stream, shard_size_gb=SMALL) == "completed"
    assert sorted(stored_before) == ["samples.json", *others]


def test_shards_that_are_stored_in_another_order_have_the_same_bytes(storage, extract):
    spec = {"shard_size_gb": SMALL}
    stream = a_stream(storage, text_lines(120))
    extract(stream, **spec)
    expected = outputs(storage)
    storage.clear("activations/")
    late = {"shard_0001.safetensors": "shard_0003.safetensors", "shard_0002.safetensors": "shard_0001.safetensors"}

    def reorder(name):
        if first := late.get(name.removeprefix(PREFIX)):
            until(lambda: first in outputs(storage))

    storage.before_create = reorder
    extract(stream, **spec)
    assert outputs(storage) == expected


@pytest.mark.sample(1)
@pytest.mark.parametrize("missing", [[1], [2], [2, 3], [1, 3, 5], "all but the second to last"])
def test_a_worker_computes_the_missing_shards_of_another_worker(storage, extract, monkeypatch, missing):
    spec = {"shard_size_gb": SMALL}
    stream = a_stream(storage, [*text_lines(120), "junk"])
    extract(stream, **spec)
    expected = outputs(storage)
    shards = sorted(name for name in expected if name.startswith("shard_"))
    assert len(shards) > 5
    if isinstance(missing, str):
        missing = [number for number in range(1, len(shards) + 1) if number != len(shards) - 1]
    for number in {*missing, len(shards)}:
        storage.delete(BUCKET, f"{PREFIX}shard_{number:04d}.safetensors")
    storage.delete(BUCKET, f"{PREFIX}metadata.json")
    computed = Alive(monkeypatch, "start_shard")
    control = ExtractionState()
    uploads = len(storage.requests)
    assert extract(stream, control, **spec) == "completed"
    assert outputs(storage) == expected
    assert computed.all == len({*missing, len(shards)})
    created = [r for r in storage.requests[uploads:] if "/upload/" in r and "ifGenerationMatch=0" in r]
    # Also the rejects and the summary, and before shard 1 the samples, which are there already.
    assert len(created) == len({*missing, len(shards)}) + 2 + (1 in missing)
    assert control.progress()["samples_done"] == 121
    assert control.progress()["shards_done"] == len(shards)


def test_a_shard_that_another_writer_stored_with_other_bytes_ends_the_attempt_with_both_checksums(storage, extract):
    """An attempt on other hardware may be honest: the next attempt finds its shard, and the summary describes it."""
    spec = {"shard_size_gb": SMALL, "max_seq_length": 64}
    stream = a_stream(storage, text_lines(60, 10))
    extract(stream, **spec)
    name = f"{PREFIX}shard_0002.safetensors"
    data, metadata = storage.data(BUCKET, name), storage.metadata(BUCKET, name)
    storage.clear("activations/")
    other = data[:-1] + bytes([data[-1] ^ 1])
    storage.before_create = lambda wanted: storage.put(BUCKET, name, other, metadata) if wanted == name else None
    mine, theirs = BytesContent(data).crc32c, BytesContent(other).crc32c
    with fails("infrastructure", f"crc32c {re.escape(theirs)}, .* crc32c {re.escape(mine)}") as failure:
        extract(stream, **spec)
    assert failure.value.contradiction["object"] == name
    assert storage.data(BUCKET, name) == other
    storage.before_create = lambda wanted: None
    assert extract(stream, **spec) == "completed"
    assert json.loads(outputs(storage)["metadata.json"])["shards"][1]["crc32c"] == theirs
