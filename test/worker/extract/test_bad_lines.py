"""Lines of a stream that cannot be used, and streams without a usable line."""

import gzip
import json

import pytest

from build import BUCKET, fails, outputs, text_lines
from stored_stream import rejects

pytestmark = pytest.mark.slow

BAD_LINES = [
    b'{"text": "ok"}',
    b"junk",
    b"",
    b'{"text": "caf\xe9"}',
    b'{"a": 1}',
    b'{"tokens": [600]}',
    b'{"text": ""}',
    b'{"text": "end"}',
]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plain", b"\n".join(BAD_LINES) + b"\n"),
        ("no newline at the end", b"\n".join(BAD_LINES)),
        ("CRLF", b"\r\n".join(BAD_LINES) + b"\r\n"),
        ("BOM", b"\xef\xbb\xbf" + b"\n".join(BAD_LINES)),
        ("gzip", gzip.compress(b"\n".join(BAD_LINES), mtime=0)),
    ],
)
def test_bad_lines_are_rejected_with_their_line_numbers_and_good_lines_are_stored(storage, extract, verify, name, data):
    assert extract(data) == "completed"
    assert [(r["line"], r["sample_idx"]) for r in rejects(storage)] == [(n + 1, n) for n in range(1, 7)]
    metadata = storage.metadata(BUCKET, "activations/my-run/tpu_7/shard_0001.safetensors")
    assert (metadata["first_sample"], metadata["last_sample"], metadata["samples"], metadata["rejected"]) == (
        "0",
        "7",
        "2",
        "6",
    )
    report, problems = verify()
    assert report["ok"], problems
    assert (report["stored_once"], report["rejected"]) == (2, 6)


def test_a_stream_of_bad_lines_alone_is_finished_with_one_empty_shard(storage, extract, verify):
    assert extract(["junk"] * 5) == "completed"
    assert set(outputs(storage)) == {"shard_0001.safetensors", "metadata.json", "rejects.jsonl"}
    report, problems = verify()
    assert report["ok"], problems
    assert (report["samples"], report["rejected"]) == (5, 5)


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_stream_is_a_failure_of_the_stream(storage, extract, data):
    with fails("stream", "datasets/my-run/stream_007.jsonl: it has no lines"):
        extract(data)
    assert outputs(storage) == {}


def test_truncated_samples_are_counted(storage, extract, verify):
    spec = {"over_long": "truncate", "max_seq_length": 16}
    extract(text_lines(20), **spec)
    summary = json.loads(outputs(storage)["metadata.json"])
    assert 0 < summary["total_truncated"] < 20
    assert summary["total_samples"] == 20
    report, problems = verify(**spec)
    assert report["ok"], problems
