"""A run that is right is called right, and each way of being wrong is found and named."""

import gzip
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from build import (
    BUCKET,
    SPEC_HASH,
    a_stream,
    a_work,
    bucket,
    outputs,
    put_manifest,
    run_extract,
    shard_gb,
    text_lines,
)
from gleaner_worker.shards.write import write_safetensors
from gleaner_worker.verify.run import verify_run

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


def rewrite(storage, tmp_path, name, change, **metadata):
    """Changes what is in a safetensors shard; the object keeps its custom metadata, or gets some of it anew."""
    path = tmp_path / "rewrite"
    path.write_bytes(storage.data(BUCKET, PREFIX + name))
    tensors = safetensors.numpy.load_file(path)
    with safe_open(path, "numpy") as file:
        inside = file.metadata()
    change(tensors)
    write_safetensors(str(path), tensors, inside | {key: value for key, value in metadata.items() if key in inside})
    storage.put(BUCKET, PREFIX + name, path.read_bytes(), storage.metadata(BUCKET, PREFIX + name) | metadata)


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
    stored.delete(BUCKET, PREFIX + last)
    report, problems = verify()
    assert report["missing"] > 0
    assert f"is not finished: of its 42 samples {PREFIX}{last.partition('.')[0]} is missing" in problems


def set_value(tensors, value):
    tensors["resid_post.1"][3, 4] = value


@pytest.mark.parametrize(
    ("name", "change", "problem", "count"),
    [
        (
            "another token",
            lambda t: t["token_ids"].__setitem__(0, 5),
            "samples different, the first at line 1",
            ("different", 1),
        ),
        ("NaN", lambda t: set_value(t, np.nan), "values in layer 1 that are not finite", None),
        ("infinity", lambda t: set_value(t, -np.inf), "values in layer 1 that are not finite", None),
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
    rewrite(stored, tmp_path, "shard_0001.safetensors", change)
    report, problems = verify()
    assert not report["ok"]
    assert f"{PREFIX}shard_0001.safetensors" in problems
    assert problem in problems
    if count:
        assert report[count[0]] == count[1], report


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
        ({"final": "true"}, "comes after the final shard"),
        ({"final": "maybe"}, "says final maybe"),
        ({"tokens_sha256": "0" * 64}, "tokens_sha256"),
        ({"stream_crc32c": "AAAAAA=="}, "was made from other content of datasets/my-run/stream_007.jsonl"),
    ],
)
def test_a_shard_whose_metadata_is_wrong(stored, verify, tmp_path, changes, problem):
    rewrite(stored, tmp_path, "shard_0001.safetensors", lambda t: None, **changes)
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
    rewrite(stored, tmp_path, "shard_0001.safetensors", lambda t: None, model_fingerprint="0" * 16)
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
    put({0: print})
    assert "is not a pickle that can be trusted: it asks for builtins.print" in verify()[1]


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "gleaner_worker.verify", *arguments], capture_output=True, text=True)


def test_the_command_says_it_as_json_and_by_its_exit_status(stored):
    right = command("--bucket", BUCKET, "--run", "my-run", "--json")
    assert right.returncode == 0, right.stderr
    assert json.loads(right.stdout)["ok"] is True
    assert all("progress" in json.loads(line) for line in right.stderr.splitlines())
    stored.delete(BUCKET, PREFIX + "metadata.json")
    wrong = command("--bucket", BUCKET, "--run", "my-run", "--quiet")
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "NOT verified" in wrong.stdout and "metadata.json is missing" in wrong.stdout
    unknown = command("--bucket", BUCKET, "--run", "no-such-run", "--json", "--quiet")
    assert unknown.returncode == 2
    assert "no gs://a-bucket/activations/no-such-run/manifest.json" in unknown.stderr
    assert "no gs://a-bucket/activations/no-such-run/manifest.json" in json.loads(unknown.stdout)["problems"][0]


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


def test_a_stream_that_cannot_be_read_leaves_the_others_counted(stored, verify):
    a_stream(stored, ["x"], name="datasets/my-run/stream_008.jsonl.gz")
    stored.put(BUCKET, "datasets/my-run/stream_008.jsonl.gz", b"\x1f\x8b\x08 damaged")
    report, problems = verify()
    assert not report["ok"]
    assert report["stored_once"] == 41
    assert "stream_008.jsonl.gz" in problems
