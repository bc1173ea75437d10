"""Shards whose content, metadata, statistics or checksums are wrong."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from build import BUCKET, SPEC_HASH, bucket, outputs
from encoded_shards import parse_tensors
from forged import forged
from gleaner_reader.format.checksums import as_text, crc32c
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.verify import verify as verify_files
from gleaner_worker.model.files.model_lock import write_model_lock
from gleaner_worker.verify.verify_run import verify_run
from verified_run import PREFIX, rewrite

pytestmark = pytest.mark.slow


def test_a_missing_shard_is_found(stored, verify):
    held = stored.metadata(BUCKET, PREFIX + "shard_0002.safetensors")
    stored.delete(BUCKET, PREFIX + "shard_0002.safetensors")
    report, problems = verify()
    assert not report["ok"]
    assert report["missing"] == int(held["samples"])
    assert f"{PREFIX}shard_0002 is missing" in problems
    assert "shard_0003" not in problems
    assert f"samples missing, the first at line {int(held['first_sample']) + 1}" in problems


def test_a_missing_last_shard_is_found(stored, verify):
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
        ("a missing layer", lambda t: t.pop("resid_post.2"), "lacks resid_post.2", None),
        (
            "an unknown tensor",
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
            "decreasing offsets",
            lambda t: t["sample_offsets"].__setitem__(1, 9999),
            "sample_offsets that do not divide",
            None,
        ),
        ("a sample twice", lambda t: t["sample_idx"].__setitem__(1, 0), "holds samples out of order", ("doubled", 1)),
        (
            "a sample of another shard",
            lambda t: t["sample_idx"].__setitem__(-1, 41),
            "holds sample 41, which is not among",
            ("missing", 1),
        ),
    ],
)
def test_a_shard_with_wrong_content_is_found(stored, finds, tmp_path, name, change, problem, count):
    rewrite(stored, "shard_0001.safetensors", change)
    report, _ = finds(f"{PREFIX}shard_0001.safetensors", problem)
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
def test_a_shard_with_wrong_metadata_is_found(stored, verify, tmp_path, changes, problem):
    rewrite(stored, "shard_0001.safetensors", lambda t: None, **changes)
    report, problems = verify()
    assert not report["ok"]
    assert any(part in problems for part in problem.split("|")), problems


def test_a_truncated_shard_is_found(stored, finds):
    name = PREFIX + "shard_0001.safetensors"
    stored.put(BUCKET, name, stored.data(BUCKET, name)[:-5], stored.metadata(BUCKET, name))
    finds("shard_0001.safetensors cannot be read")


def test_a_shard_of_another_model_is_found(stored, verify, tmp_path):
    rewrite(stored, "shard_0001.safetensors", lambda t: None, model_fingerprint="0" * 16)
    assert "the shards of my-run were made with 2 different models" in verify()[1]


def copy_shard(storage, number, to):
    name = PREFIX + f"shard_{number:04d}.safetensors"
    storage.put(BUCKET, PREFIX + to, storage.data(BUCKET, name), storage.metadata(BUCKET, name))


def test_a_second_object_of_the_same_shard_number_is_found(stored, verify):
    copy_shard(stored, 1, "shard_0001.pkl.gz")
    report, problems = verify()
    assert not report["ok"]
    assert report["doubled"] == int(stored.metadata(BUCKET, PREFIX + "shard_0001.safetensors")["samples"])
    assert f"{PREFIX}shard_0001.safetensors is shard 1, as {PREFIX}shard_0001.pkl.gz is" in problems


def test_a_shard_under_another_number_counts_its_samples_twice(stored, verify):
    copy_shard(stored, 1, "shard_0099.safetensors")
    report, problems = verify()
    assert f"{PREFIX}shard_0099.safetensors says that it is shard 1" in problems
    assert report["doubled"] == int(stored.metadata(BUCKET, PREFIX + "shard_0001.safetensors")["samples"])


def stats_with(name, **changes):
    def change(stats):
        stats[name] = stats[name] | changes
        return stats

    return change


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("another mean", stats_with("resid_post.1", mean=5.0), "wrong statistics of resid_post.1: mean 5.0, not"),
        ("another norm", stats_with("resid_post.1", norm=0.0), "wrong statistics of resid_post.1: norm 0.0, not"),
        ("another maximum", stats_with("resid_post.0", max_abs=1e9), "wrong statistics of resid_post.0: max_abs"),
        ("a false count", stats_with("resid_post.0", non_finite=3), "wrong statistics of resid_post.0: non_finite 3"),
        ("a mean that is text", stats_with("resid_post.0", mean="1"), "wrong statistics of resid_post.0: mean '1'"),
        ("another share of zeros", stats_with("resid_post.0", zeros=0.5), "resid_post.0: zeros 0.5, not"),
        (
            "other quantiles",
            stats_with("resid_post.0", norm_quantiles=[1] * 5),
            "norm_quantiles [1, 1, 1, 1, 1], not",
        ),
        ("no quantiles", stats_with("resid_post.0", norm_quantiles=None), "norm_quantiles None, not"),
        (
            "another position of the largest value",
            lambda stats: stats_with(
                "resid_post.0", max_abs_by_position=stats["resid_post.0"]["max_abs_by_position"][::-1]
            )(stats),
            "resid_post.0: max_abs_by_position",
        ),
        ("no statistics", lambda stats: {}, "has no statistics of resid_post.0"),
    ],
)
def test_a_shard_with_false_statistics_is_found(stored, verify, name, change, problem):
    _, inside = parse_tensors(stored.data(BUCKET, PREFIX + "shard_0001.safetensors"))
    stats = json.dumps(change(json.loads(inside["stats"])))
    rewrite(stored, "shard_0001.safetensors", inside={"stats": stats}, signed=True)
    report, problems = verify()
    assert (report["ok"], report["stored_once"], report["missing"]) == (False, 41, 0)
    assert problem in problems
    assert "metadata.json lists other statistics or tensors of" in problems


def test_the_samples_of_a_shard_with_a_value_that_is_not_finite_are_different(stored, verify):
    rewrite(stored, "shard_0001.safetensors", lambda tensors: set_value(tensors, np.nan), signed=True)
    held = int(stored.metadata(BUCKET, PREFIX + "shard_0001.safetensors")["samples"])
    report, _ = verify()
    assert (report["different"], report["missing"], report["stored_once"]) == (held, 0, 41 - held)


def test_a_tensor_with_a_wrong_checksum_is_found(stored, verify, finds):
    name = PREFIX + "shard_0001.safetensors"
    data = bytearray(stored.data(BUCKET, name))
    data[-1] ^= 1
    stored.put(BUCKET, name, bytes(data), stored.metadata(BUCKET, name))
    finds(f"{name} is damaged: resid_post.2 has the checksum")
    name = PREFIX + "shard_0002.safetensors"
    _, inside = parse_tensors(stored.data(BUCKET, name))
    checksums = json.loads(inside["checksums"]) | {"token_ids": "AAAAAA=="}
    rewrite(stored, "shard_0002.safetensors", inside={"checksums": json.dumps(checksums)})
    assert f"{name} is damaged: token_ids has the checksum" in verify()[1]


def test_other_bytes_of_the_same_size_and_crc32c_are_found(stored, verify, finds):
    name = PREFIX + "shard_0001.safetensors"
    stored.put(BUCKET, name, forged(stored.data(BUCKET, name)), stored.metadata(BUCKET, name))
    report, _ = finds(f"{name} holds other bytes than were stored (sha256 ")
    assert report["different"] == int(stored.metadata(BUCKET, name)["samples"])


def state_result(storage, **changes):
    """States the digest that the reader finds, in a result of the manifest. Returns the digest."""
    manifest = read_json(storage, "manifest.json")
    manifest["result"] = {"shards": len([name for name in outputs(storage) if name.startswith("shard_")])} | changes
    write_json(storage, "manifest.json", manifest)
    digest = verify_files(open_folder(f"gs://{BUCKET}/activations/my-run")).digest
    manifest["result"] = {"digest": digest} | manifest["result"]
    write_json(storage, "manifest.json", manifest)
    return digest


def read_json(storage, name):
    return json.loads(storage.data(BUCKET, f"activations/my-run/{name}"))


def write_json(storage, name, value):
    storage.put(BUCKET, f"activations/my-run/{name}", json.dumps(value).encode())


def rewrite_json(name, **changes):
    return lambda storage: write_json(storage, name, read_json(storage, name) | changes)


def other_values(storage):
    """Other activations of the first layer, which keep its statistics; every checksum is made again."""
    rewrite(storage, "shard_0001.safetensors", swap_columns, signed=True)
    data = storage.data(BUCKET, PREFIX + "shard_0001.safetensors")
    summary = read_json(storage, "tpu_7/metadata.json")
    summary["shards"][0] |= {"crc32c": as_text(crc32c(data)), "sha256": hashlib.sha256(data).hexdigest()}
    write_json(storage, "tpu_7/metadata.json", summary)


def swap_columns(tensors):
    tensors["resid_post.0"][:] = tensors["resid_post.0"][:, ::-1].copy()


FORGED = {
    "values with every sum beside them": other_values,
    **{
        f"{key} of a stream": rewrite_json("tpu_7/metadata.json", **{key: value})
        for key, value in {"layers": [9], "dataset_path": "gs://b/other", "model_path": "x", "versions": {}}.items()
    },
    "model.json": lambda storage: storage.put(BUCKET, "activations/my-run/model.json", b"{}"),
    "the samples of the result": lambda storage: write_json(
        storage,
        "manifest.json",
        (manifest := read_json(storage, "manifest.json")) | {"result": manifest["result"] | {"samples": 9}},
    ),
    "no result": rewrite_json("manifest.json", result=None),
    "a result of other shards": lambda storage: state_result(storage, shards=9),
    "a result without a digest": lambda storage: state_result(storage, digest=None),
}


@pytest.mark.parametrize("name", FORGED)
def test_both_verifiers_refuse_what_is_forged_and_agree_about_the_digest(name, stored, finds, verify):
    state_result(stored)
    FORGED[name](stored)
    report, _ = finds(unanchored=False)
    found = verify_files(open_folder(f"gs://{BUCKET}/activations/my-run"))
    assert [problem for problem in found.problems if "spec" not in problem]  # the spec of this fixture has another hash
    assert report["digest"] == found.digest


def test_a_run_has_the_digest_in_its_manifest_or_another_one_that_is_given(stored, tmp_path):
    def report_of(**options):
        return verify_run(bucket(), "my-run", str(tmp_path), lambda _: None, **options)

    report = report_of()
    assert not report["ok"] and report["problems"][-1].startswith("unanchored: the manifest states no digest of these")
    assert (report_of(unanchored=True)["ok"], report_of(unanchored=True)["anchored"]) == (True, False)
    assert report_of(digest=report["digest"])["ok"]
    digest = state_result(stored)
    report = report_of()
    assert (report["ok"], report["anchored"], report["digest"]) == (True, True, digest)
    wrong = report_of(digest="0" * 64)["problems"]
    assert wrong == [f"the digest of the run is {digest}, and its publisher states {'0' * 64}"]


def test_shards_of_another_model_than_the_model_lock_names_are_found(stored, verify, finds, tiny_models):
    mine = tiny_models().files
    write_model_lock(bucket(), "my-run", mine)
    assert verify()[0]["ok"], verify()
    other = replace(mine, files=mine.files | {"model.safetensors": "0" * 64})
    stored.delete(BUCKET, "activations/my-run/model.json")
    write_model_lock(bucket(), "my-run", other)
    finds(
        f"shard_0001.safetensors says model_fingerprint {mine.fingerprint}, not {other.fingerprint}",
        "metadata.json says model_fingerprint",
    )
