"""A run that is right is called right, and each way of being wrong is found and named."""

import gzip
import io
import json
import pickle
import queue
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import zstandard

from build import (
    BUCKET,
    SPEC_HASH,
    a_model,
    a_stream,
    a_work,
    bucket,
    outputs,
    put_manifest,
    run_extract,
    shard_gb,
    text_lines,
)
from gleaner_reader.checksums import as_text, crc32c
from gleaner_reader.header import parse_tensors
from gleaner_worker.model.model_lock import write_model_lock
from gleaner_worker.shards.encode import encode_tensors
from gleaner_worker.shards.shard_bytes import bytes_of
from gleaner_worker.shards.zstd_seekable import compress
from gleaner_worker.verify.__main__ import Progress
from gleaner_worker.verify.run import verify_run

pytestmark = pytest.mark.slow

SPEC = {"shard_size_gb": shard_gb(500)}
PREFIX = "activations/my-run/tpu_7/"
LINES = [*text_lines(40), "junk", json.dumps({"text": "last"})]


@pytest.fixture
def stored(storage, tmp_path, tiny_models, tiny_folder):
    """The run, finished: change something, then verify()."""
    run_extract(a_work(a_stream(storage, LINES), **SPEC), tiny_models(), str(tmp_path))
    put_manifest(storage, model=tiny_folder, **SPEC)
    return storage


@pytest.fixture
def verify(tmp_path):
    def run():
        report = verify_run(bucket(), "my-run", str(tmp_path), lambda _: None)
        return report, "\n".join([*report["problems"], *(p for s in report["streams"] for p in s["problems"])])

    return run


def rewrite(storage, name, change=lambda tensors: None, inside=None, signed=False, **metadata):
    """Changes what is in a safetensors shard, checksums and all; its custom metadata stay, or get some of them anew.

    inside: what the header says otherwise than before. signed: nothing tells that the bytes are others.
    """
    data = storage.data(BUCKET, PREFIX + name)
    is_packed = name.endswith(".zst")
    tensors, said = parse_tensors(unpacked(data) if is_packed else data)
    tensors = {key: values.copy() for key, values in tensors.items()}
    change(tensors)
    tensors = {key: np.ascontiguousarray(values) for key, values in tensors.items()}
    said["checksums"] = json.dumps({key: as_text(crc32c(bytes_of(values))) for key, values in tensors.items()})
    said |= {key: value for key, value in metadata.items() if key in said} | (inside or {})
    data = encode_tensors(tensors, said).read()
    if is_packed:
        data = b"".join(compress([np.frombuffer(data, np.uint8)], threads=1))
    if signed:
        metadata["crc32c"] = as_text(crc32c(data))
    storage.put(BUCKET, PREFIX + name, data, storage.metadata(BUCKET, PREFIX + name) | metadata)


def unpacked(data):
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


def test_a_run_that_is_right(stored, verify):
    report, problems = verify()
    assert report["ok"], problems
    shards = [name for name in outputs(stored) if name.startswith("shard_")]
    totals = {
        key: report[key] for key in ("samples", "stored_once", "missing", "doubled", "different", "rejected", "shards")
    }
    assert totals == {
        "samples": 42,
        "stored_once": 41,
        "missing": 0,
        "doubled": 0,
        "different": 0,
        "rejected": 1,
        "shards": len(shards),
    }
    assert report["bytes"] == sum(len(outputs(stored)[name]) for name in shards)


def test_a_shard_that_is_missing(stored, verify):
    held = stored.metadata(BUCKET, PREFIX + "shard_0002.safetensors")
    stored.delete(BUCKET, PREFIX + "shard_0002.safetensors")
    report, problems = verify()
    assert not report["ok"]
    assert report["missing"] == int(held["samples"])
    assert f"{PREFIX}shard_0002 is missing" in problems
    assert "shard_0003" not in problems
    assert f"samples missing, the first at line {int(held['first_sample']) + 1}" in problems


def test_a_last_shard_that_is_missing(stored, verify):
    last = max(name for name in outputs(stored) if name.startswith("shard_"))
    left = int(stored.metadata(BUCKET, PREFIX + last)["first_sample"])
    stored.delete(BUCKET, PREFIX + last)
    report, problems = verify()
    assert report["missing"] > 0
    name = PREFIX + last.partition(".")[0]
    assert f"is not finished: its shards cover {left} of its 42 samples; {name} is missing, and perhaps" in problems


def set_value(tensors, value):
    tensors["resid_post.1"][3, 4] = value


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "change", "problem", "count"),
    [
        (
            "another token",
            lambda t: t["token_ids"].__setitem__(0, 5),
            "samples different, the first at line 1",
            ("different", 1),
        ),
        ("NaN", lambda t: set_value(t, np.nan), "values in resid_post.1 that are not finite", None),
        ("infinity", lambda t: set_value(t, -np.inf), "values in resid_post.1 that are not finite", None),
        ("a layer that is missing", lambda t: t.pop("resid_post.2"), "lacks resid_post.2", None),
        (
            "a tensor too many",
            lambda t: t.update(x=np.zeros(1, np.float32)),
            "has x, which does not belong there",
            None,
        ),
        (
            "half of the width",
            lambda t: t.update({"resid_post.0": t["resid_post.0"][:, :16]}),
            "has resid_post.0 as BF16",
            None,
        ),
        (
            "another type",
            lambda t: t.update({"resid_post.0": t["resid_post.0"].astype(np.float32)}),
            "has resid_post.0 as F32",
            None,
        ),
        (
            "another activation",
            lambda t: t["resid_post.0"].__setitem__((0, 0), 7),
            "holds other bytes than were stored",
            None,
        ),
        (
            "offsets that go back",
            lambda t: t["sample_offsets"].__setitem__(1, 9999),
            "sample_offsets that do not divide",
            None,
        ),
        (
            "a sample twice",
            lambda t: t["sample_idx"].__setitem__(1, 0),
            "holds samples out of order",
            ("doubled", 1),
        ),
        (
            "a sample of elsewhere",
            lambda t: t["sample_idx"].__setitem__(-1, 41),
            "holds sample 41, which is not among",
            ("missing", 1),
        ),
    ],
)
def test_a_shard_whose_content_is_wrong(stored, verify, tmp_path, name, change, problem, count):
    rewrite(stored, "shard_0001.safetensors", change)
    report, problems = verify()
    assert not report["ok"]
    assert f"{PREFIX}shard_0001.safetensors" in problems
    assert problem in problems
    if count:
        assert report[count[0]] == count[1], report


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run": "other"}, "says run other, not my-run"),
        ({"stream": "008"}, "says stream 008"),
        ({"spec_hash": "6" * 64}, f"says spec_hash {'6' * 64}, not {SPEC_HASH}"),
        ({"shard": "2"}, "says that it is shard 2"),
        ({"first_sample": "1"}, "starts at sample 1|says samples 1 to"),
        ({"samples": "999"}, "999 stored"),
        ({"tokens": "junk"}, "says tokens junk, not a number"),
        ({"tokens": "²"}, "says tokens ², not a number"),
        ({"rows": "9" * 5000}, "9, not a number"),
        ({"final": "true"}, "comes after the final shard"),
        ({"final": "maybe"}, "says final maybe"),
        ({"tokens_sha256": "0" * 64}, "tokens_sha256"),
        ({"stream_crc32c": "AAAAAA=="}, "was made from other content of datasets/my-run/stream_007.jsonl"),
    ],
)
def test_a_shard_whose_metadata_is_wrong(stored, verify, tmp_path, changes, problem):
    rewrite(stored, "shard_0001.safetensors", lambda t: None, **changes)
    report, problems = verify()
    assert not report["ok"]
    assert any(part in problems for part in problem.split("|")), problems


def test_a_shard_that_is_damaged(stored, verify):
    name = PREFIX + "shard_0001.safetensors"
    stored.put(BUCKET, name, stored.data(BUCKET, name)[:-5], stored.metadata(BUCKET, name))
    report, problems = verify()
    assert not report["ok"]
    assert "shard_0001.safetensors cannot be read" in problems


def test_a_stream_that_was_changed_afterwards(stored, verify):
    a_stream(stored, [*LINES[:5], json.dumps({"text": "another"}), *LINES[6:]])
    report, problems = verify()
    assert not report["ok"]
    assert "was made from other content of datasets/my-run/stream_007.jsonl" in problems


def test_a_stream_without_a_record_is_called_empty(storage, verify, tiny_folder):
    storage.put(BUCKET, "datasets/my-run/stream_007.jsonl", b"")
    put_manifest(storage, model=tiny_folder, **SPEC)
    report, problems = verify()
    assert (report["ok"], report["samples"]) == (False, 0)
    assert "stream_007.jsonl is empty: it holds no record" in problems
    assert "not finished" not in problems


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("absent", None, "1 samples missing, the first at line 41"),
        ("empty", b"", "1 samples missing"),
        (
            "twice",
            b'{"line": 41, "sample_idx": 40, "reason": "x"}\n' * 2,
            "1 samples doubled, the first at line 41",
        ),
        ("not JSON", b"junk\n", "rejects.jsonl line 1 is not a record"),
        (
            "no such line",
            b'{"line": 99, "sample_idx": 98, "reason": "x"}\n',
            "rejects.jsonl line 1 is not a record",
        ),
        (
            "a line that is good",
            b'{"line": 1, "sample_idx": 0, "reason": "x"}\n',
            "1 samples doubled, the first at line 1",
        ),
    ],
)
def test_rejects_that_are_wrong(stored, verify, name, text, problem):
    if text is None:
        stored.delete(BUCKET, PREFIX + "rejects.jsonl")
    else:
        stored.put(BUCKET, PREFIX + "rejects.jsonl", text)
    report, problems = verify()
    assert not report["ok"]
    assert problem in problems
    assert f"{PREFIX}rejects.jsonl" in problems or name == "twice"


def test_a_summary_that_is_wrong_or_missing(stored, verify):
    summary = json.loads(stored.data(BUCKET, PREFIX + "metadata.json"))
    for change in ({"total_samples": 7}, {"shards": summary["shards"][1:]}, {"total_tokens": 0}):
        stored.put(BUCKET, PREFIX + "metadata.json", json.dumps(summary | change).encode())
        report, problems = verify()
        assert not report["ok"]
        assert "metadata.json" in problems
    stored.delete(BUCKET, PREFIX + "metadata.json")
    assert "metadata.json is missing" in verify()[1]


def test_a_shard_of_another_model(stored, verify, tmp_path):
    rewrite(stored, "shard_0001.safetensors", lambda t: None, model_fingerprint="0" * 16)
    assert "the shards of my-run were made with 2 different models" in verify()[1]


def test_a_second_stream_of_one_number_and_shards_of_no_stream(stored, verify):
    a_stream(stored, ["x"], name="datasets/my-run/stream_007.jsonl.gz")
    stored.put(BUCKET, "activations/my-run/tpu_9/shard_0001.safetensors", b"x")
    stored.put(BUCKET, "datasets/my-run/notes.txt", b"no stream")
    stored.put(BUCKET, "activations/my-run-2/tpu_7/shard_0001.safetensors", b"another run")
    report, problems = verify()
    assert not report["ok"]
    assert "stream_007.jsonl.gz has the same number as datasets/my-run/stream_007.jsonl" in problems
    assert "activations/my-run/tpu_9/ holds 1 objects, but no stream of that number" in problems
    assert report["stored_once"] == 41
    assert "notes" not in problems and "my-run-2" not in problems


@pytest.mark.long
def test_a_pickle_shard_with_other_samples_or_a_program_in_it(storage, tmp_path, tiny_models, tiny_folder, verify):
    spec = {"format": "pkl.gz", "dtype": "fp32"}
    run_extract(a_work(a_stream(storage, LINES), **spec), tiny_models(**spec), str(tmp_path))
    put_manifest(storage, model=tiny_folder, **spec)
    assert verify()[0]["ok"], verify()
    name = PREFIX + "shard_0001.pkl.gz"
    metadata, data = (
        storage.metadata(BUCKET, name),
        pickle.loads(gzip.decompress(storage.data(BUCKET, name))),
    )  # our own

    def put(value):
        storage.put(BUCKET, name, gzip.compress(pickle.dumps(value, 4)), metadata)

    data[1][0]["activation"] = data[1][0]["activation"] * np.float32("nan")
    put(data)
    assert "sample 0 has values that are not finite" in verify()[1]
    put({layer: entries[1:] for layer, entries in data.items() if layer != 1} | {1: data[1][1:]})
    assert "does not hold exactly the layers" in verify()[1]
    put({layer: data[layer][1:] for layer in sorted(data)})
    assert "holds 40 samples" in verify()[1]
    for entries in data.values():
        first, second = (entry["activation"] for entry in entries[:2])
        entries[0]["activation"] = np.zeros((len(first) + 1, first.shape[1]), np.float32)
        entries[1]["activation"] = np.zeros((len(second) - 1, first.shape[1]), np.float32)
        for entry in entries[:2]:
            entry["shape"] = entry["activation"].shape
    put(data)
    assert "holds 2 samples that are not as in the stream" in verify()[1]
    put({0: print})
    assert "is not a pickle that can be trusted: it asks for builtins.print" in verify()[1]


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "gleaner_worker.verify", *arguments], capture_output=True, text=True)


def test_the_command_says_it_as_json_and_by_its_exit_status(stored):
    right = command("--bucket", BUCKET, "--run", "my-run", "--json")
    assert right.returncode == 0, right.stderr
    assert json.loads(right.stdout)["ok"] is True
    stored.delete(BUCKET, PREFIX + "metadata.json")
    wrong = command("--bucket", BUCKET, "--run", "my-run", "--quiet")
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "NOT verified" in wrong.stdout and "metadata.json is missing" in wrong.stdout
    unknown = command("--bucket", BUCKET, "--run", "no-such-run", "--json", "--quiet")
    assert (unknown.returncode, unknown.stderr) == (2, "")
    assert "no gs://a-bucket/activations/no-such-run/manifest.json" in json.loads(unknown.stdout)["problems"][0]


@pytest.mark.parametrize("module", ["verify.__main__", "model.tiny"])
def test_commands_that_compute_nothing_start_without_jax(module):
    """JAX takes seconds to import."""
    code = f"import sys, gleaner_worker.{module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_run_without_a_name_is_found_where_its_streams_are(storage, tmp_path, tiny_models, tiny_folder):
    resource = a_stream(storage, LINES, name="datasets/stream_007.jsonl")
    a_stream(storage, ["x"], name="datasets/other-run/stream_007.jsonl")
    from build import a_work_answer, parse_work

    answer = a_work_answer(resource, run="default", **SPEC)
    answer["work"]["output_prefix"] = "activations/tpu_7/"
    run_extract(parse_work(answer["lease"], answer["work"]), tiny_models(), str(tmp_path))
    manifest = {
        "schema": "gleaner/1",
        "run": "default",
        "spec": answer["work"]["spec"] | {"model": tiny_folder},
        "spec_hash": SPEC_HASH,
    }
    storage.put(BUCKET, "activations/manifest.json", json.dumps(manifest).encode())
    report = verify_run(bucket(), "default", str(tmp_path), lambda _: None)
    assert report["ok"], report
    assert len(report["streams"]) == 1


def copy_shard(storage, number, to):
    name = PREFIX + f"shard_{number:04d}.safetensors"
    storage.put(BUCKET, PREFIX + to, storage.data(BUCKET, name), storage.metadata(BUCKET, name))


def test_a_second_object_of_one_number_counts_its_samples_twice(stored, verify):
    copy_shard(stored, 1, "shard_0001.pkl.gz")
    report, problems = verify()
    assert not report["ok"]
    assert f"{PREFIX}shard_0001.safetensors is shard 1, as {PREFIX}shard_0001.pkl.gz is" in problems


def test_a_shard_under_another_number_counts_its_samples_twice(stored, verify):
    copy_shard(stored, 1, "shard_0099.safetensors")
    report, problems = verify()
    assert f"{PREFIX}shard_0099.safetensors says that it is shard 1" in problems
    assert report["doubled"] == int(stored.metadata(BUCKET, PREFIX + "shard_0001.safetensors")["samples"])


def test_a_shard_whose_bytes_rotted_is_told_at_once_and_the_other_shards_are_read(stored, verify):
    name = PREFIX + "shard_0002.safetensors"
    kept = stored.objects[BUCKET, name]
    kept["data"] = kept["data"][:-5] + bytes([kept["data"][-5] ^ 1]) + kept["data"][-4:]
    report, problems = verify()
    lost = int(kept["resource"]["metadata"]["samples"])
    assert (report["missing"], report["stored_once"], report["different"]) == (lost, 41 - lost, 0)
    assert problems.splitlines()[0] == f"{name} is damaged: its bytes differ from its checksum"
    assert f"datasets/my-run/stream_007.jsonl has {lost} samples missing" in problems
    assert "metadata.json" not in problems
    assert sum("shard_0002" in request and "alt=media" in request for request in stored.requests) <= 3


def rot(storage, name):
    """Changes the first byte of an object, whose checksum stays."""
    kept = storage.objects[BUCKET, name]
    kept["data"] = bytes([kept["data"][0] ^ 1]) + kept["data"][1:]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("deleted", "it is not there"), (403, "Forbidden: ")],
    ids=["deleted while verify reads", "refused"],
)
def test_a_shard_that_cannot_be_downloaded_is_named_and_the_other_shards_are_read(stored, verify, fault, reason):
    name = PREFIX + "shard_0002.safetensors"
    lost = int(stored.metadata(BUCKET, name)["samples"])

    def fail(request):
        if name not in request or "alt=media" not in request:
            return None
        if fault == "deleted":
            stored.delete(BUCKET, name)
            return None
        return fault

    stored.faults = fail
    report, problems = verify()
    assert (report["missing"], report["stored_once"]) == (lost, 41 - lost)
    assert f"{name} cannot be read: Failed to download gs://{BUCKET}/{name}: {reason}" in problems
    assert "metadata.json" not in problems


def test_a_stream_whose_bytes_rotted_has_the_numbers_of_its_shards_and_every_sample_missing(stored, verify):
    right = verify()[0]
    name = "datasets/my-run/stream_007.jsonl"
    rot(stored, name)
    report, problems = verify()
    same = ("samples", "shards", "bytes", "tokens", "rows")
    assert {key: report[key] for key in same} == {key: right[key] for key in same}
    assert (report["ok"], report["missing"], report["stored_once"]) == (False, 42, 0)
    assert problems.splitlines() == [
        f"{name} is damaged: its bytes differ from its checksum",
        f"{name} has 42 samples missing: without the stream they cannot be compared",
    ]


def test_a_stream_that_is_deleted_while_verify_reads_is_named(stored, verify):
    name = "datasets/my-run/stream_007.jsonl"
    stored.faults = lambda request: stored.delete(BUCKET, name) if f"{name}?" in request else None
    report, problems = verify()
    assert (report["samples"], report["missing"]) == (42, 42)
    assert f"{name} cannot be read: Failed to download gs://{BUCKET}/{name}: it is not there" in problems


def test_a_model_json_whose_bytes_rotted_is_named_and_the_shards_are_read(stored, verify, tiny_models):
    write_model_lock(bucket(), "my-run", tiny_models().files)
    rot(stored, "activations/my-run/model.json")
    report, problems = verify()
    assert (report["ok"], report["stored_once"], report["rejected"]) == (False, 41, 1)
    assert "activations/my-run/model.json: its bytes differ from its checksum" in problems
    assert len(problems.splitlines()) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["metadata.json", "rejects.jsonl"])
def test_a_summary_or_rejects_whose_bytes_rotted_leave_the_shards_counted(stored, verify, name):
    rot(stored, PREFIX + name)
    report, problems = verify()
    assert (report["ok"], report["stored_once"]) == (False, 41)
    assert f"{PREFIX}{name} is damaged: its bytes differ from its checksum" in problems


def test_the_progress_of_a_long_verification_names_stream_shards_and_time():
    said = queue.Queue()
    progress = Progress("my-run", said.put)
    started = time.monotonic()
    assert re.fullmatch(r"Verifying my-run, 6\d s", progress.line(started + 65))
    progress.tell({"stream": "002", "streams_done": 1, "streams": 8, "shards": 0})
    assert "my-run, stream 002 (1 of 8 streams done), 6" in progress.line(started + 65)
    progress.tell({"shards_done": 3, "shards": 40})
    assert "stream 002 (1 of 8 streams done), 3 of its 40 shards read, 6" in progress.line(started + 65)
    progress.start(0.01)
    assert said.get(timeout=60).startswith("Verifying my-run, stream 002")


def test_a_damaged_shard_is_told_while_later_shards_are_still_to_be_read(stored, tmp_path):
    rot(stored, PREFIX + "shard_0001.safetensors")
    said, told = [], []
    progress = Progress("my-run\x1b[2J", said.append)
    verify_run(bucket(), "my-run", str(tmp_path), lambda value: (told.append(value), progress.tell(value)))
    assert said == [f"problem: {PREFIX}shard_0001.safetensors is damaged: its bytes differ from its checksum"]
    at = next(index for index, value in enumerate(told) if "problem" in value)
    assert any("shards_done" in value for value in told[at:])
    progress.tell({"problem": "x\x1b[2J\u202e\u2028"})
    assert said[-1] == "problem: x\ufffd[2J\ufffd\ufffd"


def test_a_stream_that_cannot_be_read_leaves_the_others_counted(stored, verify):
    a_stream(stored, ["x"], name="datasets/my-run/stream_008.jsonl.gz")
    stored.put(BUCKET, "datasets/my-run/stream_008.jsonl.gz", b"\x1f\x8b\x08 damaged")
    report, problems = verify()
    assert not report["ok"]
    assert report["stored_once"] == 41
    assert "stream_008.jsonl.gz" in problems


def swap(tensors, name):
    tensors[name][[0, 1]] = tensors[name][[1, 0]]


def put(tensors, name, place, value):
    tensors[name][place] = value


KINDS = [
    (
        {
            "dtype": "int8",
            "format": "safetensors.zst",
            "sites": ["resid_pre", "mlp_out"],
            "layers": [1, 2],
            "keep": ["n"],
        },
        [
            (
                lambda t: put(t, "mlp_out.1.scale", 0, np.nan),
                "has scales of mlp_out.1 that are below zero or not finite",
            ),
            (lambda t: put(t, "mlp_out.1.scale", 0, -1), "has scales of mlp_out.1 that are below zero or not finite"),
            (lambda t: put(t, "mlp_out.1.scale", 0, 99), "says of mlp_out.1 max_abs"),
            (lambda t: t.pop("resid_pre.2.scale"), "lacks resid_pre.2.scale"),
            (
                lambda t: put(t, "kept", 5, ord("8")),
                "holds 1 samples that are not as in the stream, the first at line 1",
            ),
            (lambda t: t.pop("kept"), "lacks kept"),
            (lambda t: t.update(positions=t["token_ids"]), "has positions, which does not belong there"),
        ],
    ),
    (
        {"dtype": "fp16", "tokens": [3, 0, -1], "exclude_special": True},
        [
            (lambda t: swap(t, "positions"), "holds 1 samples that are not as in the stream, the first at line"),
            (lambda t: put(t, "positions", 0, 9999), "it has positions that its samples lack"),
            (lambda t: put(t, "row_offsets", 1, 4), "holds 2 samples that are not as in the stream, the first at line"),
            (lambda t: put(t, "resid_post.1", (0, 0), np.inf), "has values in resid_post.1 that are not finite"),
            (lambda t: t.pop("row_offsets"), "lacks row_offsets"),
        ],
    ),
    (
        {"dtype": "fp32", "format": "safetensors.zst", "tokens": "mean"},
        [
            (lambda t: put(t, "token_ids", 0, 5), "holds 1 samples that are not as in the stream, the first at line 1"),
            (lambda t: put(t, "resid_post.1", slice(None), 0), "says of resid_post.1 max_abs"),
            (lambda t: t.pop("row_offsets"), "lacks row_offsets"),
        ],
    ),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("spec", "changes"), KINDS, ids=lambda value: str(value.get("tokens", "all")) if isinstance(value, dict) else ""
)
def test_every_kind_of_run_is_verified_and_its_damage_found(
    storage, tmp_path, tiny_models, tiny_folder, verify, spec, changes
):
    spec = spec | {"max_seq_length": 32}  # one batch shape
    lines = [json.dumps(json.loads(line) | {"n": 7}) for line in text_lines(12, 5)]
    run_extract(a_work(a_stream(storage, lines), **spec), tiny_models(**spec), str(tmp_path))
    put_manifest(storage, model=tiny_folder, **spec)
    report, problems = verify()
    assert report["ok"], problems
    assert report["rows"] == int(storage.metadata(BUCKET, PREFIX + shard_of(storage))["rows"])
    assert (report["rows"] < report["tokens"]) == ("tokens" in spec)
    name = shard_of(storage)
    data, metadata = storage.data(BUCKET, PREFIX + name), storage.metadata(BUCKET, PREFIX + name)
    for change, problem in changes:
        rewrite(storage, name, change, signed=True)
        report, problems = verify()
        assert not report["ok"]
        assert problem in problems, problems
        assert "holds other bytes" not in problems
        storage.put(BUCKET, PREFIX + name, data, metadata)


def shard_of(storage):
    return next(name for name in outputs(storage) if name.startswith("shard_"))


def stats_without(name, **changes):
    def change(stats):
        stats[name] = stats[name] | changes
        return stats

    return change


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("another mean", stats_without("resid_post.1", mean=5.0), "says of resid_post.1 mean 5.0, where it is"),
        ("another norm", stats_without("resid_post.1", norm=0.0), "says of resid_post.1 norm 0.0, where it is"),
        ("another maximum", stats_without("resid_post.0", max_abs=1e9), "says of resid_post.0 max_abs"),
        ("bad values", stats_without("resid_post.0", non_finite=3), "says of resid_post.0 non_finite 3"),
        ("text", stats_without("resid_post.0", mean="1"), "says of resid_post.0 mean '1'"),
        ("none", lambda stats: {}, "says of resid_post.0 none"),
    ],
)
def test_a_shard_that_tells_untrue_statistics(stored, verify, name, change, problem):
    _, inside = parse_tensors(stored.data(BUCKET, PREFIX + "shard_0001.safetensors"))
    rewrite(stored, "shard_0001.safetensors", inside={"stats": json.dumps(change(json.loads(inside["stats"])))})
    report, problems = verify()
    assert not report["ok"]
    assert problem in problems
    assert "metadata.json tells other statistics of" in problems


def test_a_tensor_whose_checksum_is_another(stored, verify):
    name = PREFIX + "shard_0001.safetensors"
    data = bytearray(stored.data(BUCKET, name))
    data[-1] ^= 1
    stored.put(BUCKET, name, bytes(data), stored.metadata(BUCKET, name))
    report, problems = verify()
    assert not report["ok"]
    assert f"{name} is damaged: resid_post.2 has the checksum" in problems
    name = PREFIX + "shard_0002.safetensors"
    _, inside = parse_tensors(stored.data(BUCKET, name))
    checksums = json.loads(inside["checksums"]) | {"token_ids": "AAAAAA=="}
    rewrite(stored, "shard_0002.safetensors", inside={"checksums": json.dumps(checksums)})
    assert f"{name} is damaged: token_ids has the checksum" in verify()[1]


def test_a_summary_with_untrue_statistics(stored, verify):
    name = PREFIX + "metadata.json"
    summary = json.loads(stored.data(BUCKET, name))
    summary["shards"][0]["stats"]["resid_post.0"]["mean"] = 0.5
    stored.put(BUCKET, name, json.dumps(summary).encode())
    assert "tells other statistics of" in verify()[1]
    del summary["stats"]["resid_post.1"]
    stored.put(BUCKET, name, json.dumps(summary).encode())
    assert "does not tell the statistics of resid_post.0, resid_post.1, resid_post.2" in verify()[1]


def test_shards_that_were_not_made_with_the_model_that_the_run_was_begun_with(stored, verify, tiny_models):
    write_model_lock(bucket(), "my-run", tiny_models().files)
    assert verify()[0]["ok"], verify()
    lock = json.loads(stored.data(BUCKET, "activations/my-run/model.json"))
    stored.put(BUCKET, "activations/my-run/model.json", json.dumps(lock | {"fingerprint": "0" * 16}).encode())
    report, problems = verify()
    assert not report["ok"]
    assert f"shard_0001.safetensors says model_fingerprint {lock['fingerprint']}, not {'0' * 16}" in problems
    assert "metadata.json says model_fingerprint" in problems


@pytest.mark.long
def test_several_samples_of_a_line_are_counted_each(storage, tmp_path, tiny_folder, verify):
    folder = str(tmp_path / "model")
    shutil.copytree(tiny_folder, folder)
    (tmp_path / "model/chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    spec = {"record": {"predictions_per_task": 3}, "max_seq_length": 1024, "model": folder}
    task = {
        "task_id": "a",
        "train": [{"input": [[1]], "output": [[2]]}] * 2,
        "test": [{"input": [[n]]} for n in (1, 2)],
    }
    lines = [json.dumps(task | {"task_id": str(n)}) for n in range(4)]
    work = a_work(a_stream(storage, [*lines[:2], "junk", *lines[2:]]), **spec)
    run_extract(work, a_model(work.spec), str(tmp_path))
    put_manifest(storage, **spec)
    report, problems = verify()
    assert report["ok"], problems
    assert (report["samples"], report["stored_once"], report["rejected"]) == (15, 12, 3)
    rejects = storage.data(BUCKET, PREFIX + "rejects.jsonl")
    assert json.loads(rejects) | {"reason": ""} == {"line": 3, "sample_idx": 6, "samples": 3, "reason": ""}
    one = json.loads(rejects)
    del one["samples"]
    for text, problem in (
        ("", "has 3 samples missing, the first at line 3 (sample 6)"),
        (
            json.dumps(one | {"sample_idx": 7}),
            "rejects.jsonl lacks 2 samples that cannot be stored, the first is at line 3",
        ),
        (
            json.dumps(one | {"samples": 9}),
            "rejects.jsonl lists 6 that can be stored, the first is at line 4 (sample 9)",
        ),
        (json.dumps(one | {"samples": 10}), "is not a record of a rejected line"),
        (json.dumps(one | {"samples": 0}), "is not a record of a rejected line"),
        (json.dumps(one | {"line": 7}), "is not a record of a rejected line"),
    ):
        storage.put(BUCKET, PREFIX + "rejects.jsonl", text.encode())
        report, problems = verify()
        assert not report["ok"]
        assert problem in problems, problems


@pytest.mark.long
def test_a_pickle_of_a_selection_is_verified_too(storage, tmp_path, tiny_models, tiny_folder, verify):
    spec = {"format": "pkl.gz", "dtype": "fp16", "tokens": "1:9:2", "keep": ["n"], "layers": [0, 2]}
    spec["max_seq_length"] = 32
    lines = [json.dumps(json.loads(line) | {"n": number}) for number, line in enumerate(text_lines(12, 5))]
    run_extract(a_work(a_stream(storage, lines), **spec), tiny_models(**spec), str(tmp_path))
    put_manifest(storage, model=tiny_folder, **spec)
    report, problems = verify()
    assert report["ok"], problems
    name = PREFIX + "shard_0001.pkl.gz"
    metadata, data = storage.metadata(BUCKET, name), storage.data(BUCKET, name)
    for change, problem in (
        (lambda entry: entry["kept"].update(n=99), "tells something else of its samples in layer 2 than in 0"),
        (lambda entry: entry["positions"].reverse(), "tells something else of its samples in layer 2 than in 0"),
        (lambda entry: entry.pop("positions"), "sample 0 lacks positions"),
        (lambda entry: entry.update(activation=np.float32(entry["activation"])), "sample 0 is float32 "),
        (lambda entry: entry.update(shape=(1, 32)), "and says [1, 32]"),
    ):
        content = pickle.loads(gzip.decompress(data))  # our own
        change(content[2][0])
        storage.put(BUCKET, name, gzip.compress(pickle.dumps(content, 4)), metadata)
        report, problems = verify()
        assert not report["ok"]
        assert problem in problems, problems
    for change in (
        lambda entry: entry["kept"].update(n=99),
        lambda entry: entry["positions"].reverse(),
        lambda entry: entry.update(text_preview="another"),
    ):
        content = pickle.loads(gzip.decompress(data))
        for layer in content.values():
            change(layer[0])
        changed = gzip.compress(pickle.dumps(content, 4))
        storage.put(BUCKET, name, changed, metadata | {"crc32c": as_text(crc32c(changed))})
        report, problems = verify()
        assert (report["ok"], report["different"]) == (False, 1), problems
