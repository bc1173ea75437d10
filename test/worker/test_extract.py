"""A stream in, shards out, on the real client against the fake bucket."""

import gzip
import json
import os
import shutil
import subprocess
import threading

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build import (
    BUCKET,
    a_model,
    a_reader,
    a_stream,
    a_work,
    bucket,
    outputs,
    put_manifest,
    run_extract,
    shard_gb,
    text_lines,
)
from gleaner_worker import extract as extract_module
from gleaner_worker.batching import batch_height, batch_width
from gleaner_worker.control import Control
from gleaner_worker.failures import Failure
from gleaner_worker.records.samples import Sample, read_samples
from gleaner_worker.shards.existing_shards import ExistingShards
from gleaner_worker.spec import SITES
from gleaner_worker.verify.run import verify_run
from read_shards import read_shard, read_stream

pytestmark = pytest.mark.slow

SMALL = shard_gb(400)


def rejects(storage):
    text = outputs(storage).get("rejects.jsonl", b"").decode()
    return [json.loads(line) for line in text.splitlines()]


def verified(storage, tmp_path, folder, **spec):
    put_manifest(storage, **({"model": folder} | spec))
    report = verify_run(bucket(), "my-run", str(tmp_path), lambda _: None)
    return report["ok"], report["streams"][0]["problems"] + report["problems"], report


def computed_alone(model, sample):
    """{"site.layer": [rows, d_model] fp32} of the sample in a batch that holds nothing else, as it would be stored."""
    width = batch_width(len(sample.token_ids), model.max_length)
    host = model.start([[sample]], batch_height(width), width).collect()[0]
    found = {}
    for site in model.sites:
        for position, layer in enumerate(model.layers):
            rows = np.asarray(host.rows(site, 0)[position]).astype(np.float32)
            if model.spec.dtype == "int8":
                rows = rows * host.scale(site, 0)[position][:, None]
            found[f"{site}.{layer}"] = rows
    return found


SPECS = [
    {"dtype": "bf16", "format": "safetensors", "layers": [0, 2]},
    {"dtype": "fp32", "format": "safetensors", "sites": ["resid_pre", "mlp_out"], "layers": [0, 2]},
    {"dtype": "fp16", "format": "safetensors", "sites": list(SITES), "layers": [1]},
    {"dtype": "int8", "format": "safetensors"},
    {"dtype": "int8", "format": "safetensors.zst", "tokens": "mean", "sites": ["resid_mid", "mlp_out"]},
    {"dtype": "bf16", "format": "safetensors.zst", "tokens": "2:20:3", "keep": ["n"]},
    {"dtype": "bf16", "format": "safetensors", "tokens": [3, 0, -1], "exclude_special": True},
    {"dtype": "fp32", "format": "safetensors", "tokens": "last", "keep": ["n", "absent"]},
    {"dtype": "fp32", "format": "pkl.gz"},
    {"dtype": "fp16", "format": "pkl.gz", "tokens": "-4:", "keep": ["n"], "layers": [0, 2]},
    {"dtype": "fp32", "format": "pkl.gz", "tokens": "mean"},
]


def numbered_lines(count):
    return [json.dumps(json.loads(line) | {"n": number}) for number, line in enumerate(text_lines(count, 10))]


@pytest.mark.sample(1)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(str(value) for value in spec.values()))
def test_every_sample_is_stored_once_with_its_own_activations(storage, tmp_path, tiny_models, tiny_folder, spec):
    selection = {key: spec[key] for key in ("tokens", "exclude_special", "keep") if key in spec}
    spec = spec | {"max_seq_length": 64}  # two batch shapes
    model = tiny_models(**spec)
    spec["shard_size_gb"] = model.row_bytes * (30 if selection.get("tokens", "all") != "all" else 400) / 1e9
    work = a_work(a_stream(storage, numbered_lines(60)), **spec)
    control = Control()
    assert run_extract(work, model, str(tmp_path), control) == "completed"
    (tmp_path / "s").write_bytes(storage.data(BUCKET, work.object))
    items = list(read_samples(str(tmp_path / "s"), "s", a_reader(model)))
    samples = {item.index: item for item in items if isinstance(item, Sample)}
    stored = outputs(storage)
    shards = sorted(name for name in stored if name.startswith("shard_"))
    assert len(shards) > 2
    assert set(stored) == {*shards, "metadata.json"} | ({"rejects.jsonl"} if len(samples) < 60 else set())
    found = read_stream(stored, spec["format"])
    assert list(found) == list(samples) and len(samples) > 40
    progress = control.progress()
    assert (progress["samples_done"], progress["samples_total"]) == (60, 60)
    assert progress["shards_done"] == len(shards)
    assert progress["tokens_done"] == sum(len(sample.token_ids) for sample in samples.values())
    # What is stored for a sample is what the model computes for it alone.
    tolerance = {"fp32": 1e-5, "int8": 4e-2}.get(spec["dtype"], 2e-2)
    for index in (0, 7, 37, 59):
        if index not in samples:
            continue
        kept = {"n": index} if "keep" in spec else None
        check_sample(found[index], samples[index], kept, computed_alone(model, samples[index]), tolerance)


def check_sample(found, sample, kept, alone, tolerance):
    assert found.pop("kept", None) == kept
    if "token_ids" in found:
        assert found.pop("token_ids") == sample.token_ids.tolist()
    if (positions := found.pop("positions", None)) is not None:
        assert positions == sample.positions.tolist()
    found = {name.replace("layer ", "resid_post."): values for name, values in found.items()}
    assert set(found) == set(alone)
    for name, values in found.items():
        assert values.shape == alone[name].shape
        assert np.linalg.norm(values - alone[name]) <= tolerance * np.linalg.norm(alone[name])


@pytest.mark.long
def test_what_is_said_of_the_values_is_true(storage, tmp_path, tiny_models):
    for dtype in ("fp32", "int8"):
        spec = {"dtype": dtype, "sites": ["resid_mid", "attn_out"], "shard_size_gb": 1e-4, "max_seq_length": 64}
        exact = {"dtype": "fp32", "compute_dtype": "bf16"} | {key: spec[key] for key in ("sites", "max_seq_length")}
        if dtype == "int8":
            run_extract(a_work(a_stream(storage, text_lines(60, 10)), **exact), tiny_models(**exact), str(tmp_path))
            before_rounding = read_stream(outputs(storage), "safetensors")
            storage.clear("activations/")
        run_extract(a_work(a_stream(storage, text_lines(60, 10)), **spec), tiny_models(**spec), str(tmp_path))
        summary = json.loads(outputs(storage)["metadata.json"])
        assert len(summary["shards"]) > 2
        assert set(summary["stats"]) == {f"{site}.{layer}" for site in spec["sites"] for layer in range(3)}
        parts = [(summary["stats"], read_stream(outputs(storage), "safetensors"))]
        for entry in summary["shards"]:
            samples, inside = read_shard(outputs(storage)[entry["filename"]], "safetensors")
            assert json.loads(inside["stats"]) == entry["stats"]
            parts.append((entry["stats"], samples))
        for stats, samples in parts:
            for name, told in stats.items():
                rows = np.concatenate([sample[name] for sample in samples.values()]).astype(np.float64)
                assert told["mean"] == pytest.approx(rows.mean(), rel=1e-4, abs=1e-6)
                assert told["norm"] == pytest.approx(np.linalg.norm(rows, axis=1).mean(), rel=1e-5)
                assert told["max_abs"] == pytest.approx(np.abs(rows).max(), rel=1e-5)
                assert told["non_finite"] == 0
                if dtype == "int8":
                    true = np.concatenate([before_rounding[index][name] for index in samples]).astype(np.float64)
                    error = np.linalg.norm(rows - true) / np.linalg.norm(true)
                    assert told["int8_error"] == pytest.approx(error, rel=0.05)
        storage.clear("activations/")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("dtype", "scale", "hint"), [("fp16", 1e6, "bf16 or fp32"), ("bf16", float("nan"), "the model's weights")]
)
def test_a_value_that_is_not_finite_stops_the_stream_by_its_name(storage, tmp_path, tiny_folder, dtype, scale, hint):
    """The embedding of one token is spoilt: the sample that has it is named, and nothing of its shard is stored."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "embed_tokens" in name)
    tensors[name] = tensors[name].copy()
    tensors[name][599] = scale
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    lines = [json.dumps({"tokens": [1, 2, 3 + number]}) for number in range(40)]
    lines[25] = json.dumps({"tokens": [1, 599, 3]})
    spec = {"model": str(folder), "dtype": dtype, "sites": ["resid_pre"], "shard_size_gb": 20 * 3 * 32 * 2 * 3 / 1e9}
    work = a_work(a_stream(storage, lines), **spec)
    model = a_model(work.spec, str(tmp_path), bucket(), "my-run")
    told = rf"resid_pre.0 has \d rows that are not finite, .*sample 25; .*{hint}"
    with pytest.raises(Failure, match=told) as failure:
        run_extract(work, model, str(tmp_path))
    assert failure.value.kind == "stream"
    ranges = [storage.metadata(BUCKET, name) for name in storage.names(BUCKET, "activations/my-run/tpu_7/")]
    assert all(int(found["last_sample"]) < 25 for found in ranges)


@pytest.mark.long
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.integers(1, 40), min_size=1, max_size=40),
    st.integers(1, 300),
    st.sampled_from(["safetensors", "safetensors.zst"]),
)
def test_whatever_the_lines_every_sample_is_stored_once_and_no_index_is_left_out(
    storage, tmp_path, tiny_models, lengths, tokens_per_shard, file_format
):
    storage.clear("activations/", "datasets/")
    tokens = [n and [(7 * i + j) % 600 for j in range(n)] for i, n in enumerate(lengths)]
    lines = ["junk" if ids is None else json.dumps({"tokens": ids}) for ids in tokens]
    spec = {"format": file_format, "shard_size_gb": tokens_per_shard * 200 / 1e9, "layers": [0], "max_seq_length": 64}
    model = tiny_models(format=file_format, layers=[0], max_seq_length=64)
    assert run_extract(a_work(a_stream(storage, lines), **spec), model, str(tmp_path)) == "completed"
    stored = outputs(storage)
    samples = read_stream(stored, file_format)
    assert {i: found["token_ids"] for i, found in samples.items()} == {i: ids for i, ids in enumerate(tokens) if ids}
    assert [r["sample_idx"] for r in rejects(storage)] == [i for i, n in enumerate(lengths) if n is None]
    end = -1
    for entry in json.loads(stored["metadata.json"])["shards"]:
        assert entry["first_sample"] == end + 1
        end = entry["last_sample"]
        index_bytes = 4 * entry["tokens"] + 16 * entry["total_samples_in_shard"]
        assert (
            entry["rows"] * model.row_bytes + index_bytes <= tokens_per_shard * 200
            or entry["total_samples_in_shard"] <= 1
        )
    assert end == len(lines) - 1


def test_a_line_of_several_samples_counts_them_all_stored_or_not(storage, tmp_path, tiny_folder):
    task = {"train": [{"input": [[1, 2]], "output": [[2, 1]]}] * 2, "test": [{"input": [[3]], "output": [[4]]}]}
    lines = [json.dumps({"task_id": str(number)} | task) for number in range(4)]
    lines[2] = "junk"
    spec = {"model": tiny_folder, "record": {"predictions_per_task": 3}, "layers": [1], "max_seq_length": 1024}
    spec["shard_size_gb"] = 1e-5
    work = a_work(a_stream(storage, lines), **spec)
    control = Control()
    assert run_extract(work, a_model(work.spec, str(tmp_path), bucket()), str(tmp_path), control) == "completed"
    assert list(read_stream(outputs(storage), "safetensors")) == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    assert [(r["line"], r["sample_idx"], r["samples"]) for r in rejects(storage)] == [(3, 6, 3)]
    assert (control.progress()["samples_done"], control.progress()["samples_total"]) == (12, 12)
    summary = json.loads(outputs(storage)["metadata.json"])
    assert (summary["total_samples"], summary["total_rejected"]) == (9, 3)
    ok, problems, report = verified(storage, tmp_path, tiny_folder, **spec)
    assert ok, problems
    assert (report["samples"], report["stored_once"], report["rejected"]) == (12, 9, 3)


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
def test_bad_lines_are_told_with_their_number_and_the_others_stored(
    storage, tmp_path, tiny_models, tiny_folder, name, data
):
    assert run_extract(a_work(a_stream(storage, data)), tiny_models(), str(tmp_path)) == "completed"
    assert [(r["line"], r["sample_idx"]) for r in rejects(storage)] == [(n + 1, n) for n in range(1, 7)]
    metadata = storage.metadata(BUCKET, "activations/my-run/tpu_7/shard_0001.safetensors")
    assert (metadata["first_sample"], metadata["last_sample"], metadata["samples"], metadata["rejected"]) == (
        "0",
        "7",
        "2",
        "6",
    )
    ok, problems, report = verified(storage, tmp_path, tiny_folder)
    assert ok, problems
    assert (report["stored_once"], report["rejected"]) == (2, 6)


def test_a_stream_of_nothing_but_bad_lines_is_finished_with_one_empty_shard(
    storage, tmp_path, tiny_models, tiny_folder
):
    assert run_extract(a_work(a_stream(storage, ["junk"] * 5)), tiny_models(), str(tmp_path)) == "completed"
    assert set(outputs(storage)) == {"shard_0001.safetensors", "metadata.json", "rejects.jsonl"}
    ok, problems, report = verified(storage, tmp_path, tiny_folder)
    assert ok, problems
    assert (report["samples"], report["rejected"]) == (5, 5)


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_stream_is_its_own_failure(storage, tmp_path, tiny_models, data):
    with pytest.raises(Failure, match="datasets/my-run/stream_007.jsonl: it has no lines") as failure:
        run_extract(a_work(a_stream(storage, data)), tiny_models(), str(tmp_path))
    assert failure.value.kind == "stream"
    assert outputs(storage) == {}


def test_truncated_samples_are_counted(storage, tmp_path, tiny_models, tiny_folder):
    spec = {"over_long": "truncate", "max_seq_length": 16}
    run_extract(a_work(a_stream(storage, text_lines(20)), **spec), tiny_models(**spec), str(tmp_path))
    summary = json.loads(outputs(storage)["metadata.json"])
    assert 0 < summary["total_truncated"] < 20
    assert summary["total_samples"] == 20
    ok, problems, _ = verified(storage, tmp_path, tiny_folder, **spec)
    assert ok, problems


def test_metadata_json_has_the_seeds_fields(storage, tmp_path, tiny_models):
    run_extract(
        a_work(a_stream(storage, [*text_lines(30), "junk"]), shard_size_gb=SMALL),
        tiny_models(),
        str(tmp_path),
    )
    stored = outputs(storage)
    summary = json.loads(stored["metadata.json"])
    shards = sorted(name for name in stored if name.startswith("shard_"))
    assert summary["total_shards"] == len(shards)
    assert (summary["total_samples"], summary["total_rejected"]) == (30, 1)
    assert (summary["gcs_bucket"], summary["gcs_prefix"], summary["upload_to_gcs"]) == (
        BUCKET,
        "activations/my-run/tpu_7",
        True,
    )
    assert summary["shard_size_gb"] == pytest.approx(SMALL)
    for entry, name in zip(summary["shards"], shards, strict=True):
        assert entry["filename"] == name
        assert entry["gcs_path"] == f"gs://{BUCKET}/activations/my-run/tpu_7/{name}"
        assert entry["size_bytes"] == len(stored[name])
        assert entry["layers"] == [0, 1, 2]
        assert {
            "shard_id",
            "local_path",
            "file_size_mb",
            "buffer_size_mb",
            "samples_per_layer",
            "total_samples_in_shard",
        } <= set(entry)


def test_a_stream_that_was_overwritten_is_not_mixed(storage, tmp_path, tiny_models):
    work = a_work(a_stream(storage, text_lines(10)))
    a_stream(storage, text_lines(12))
    with pytest.raises(Failure, match="generation 1001 was overwritten or deleted") as failure:
        run_extract(work, tiny_models(), str(tmp_path))
    assert failure.value.kind == "stream"


def test_shards_of_other_content_spec_or_model_are_refused_by_name(storage, tmp_path, tiny_models):
    lines = text_lines(40)
    run_extract(a_work(a_stream(storage, lines), shard_size_gb=SMALL), tiny_models(), str(tmp_path))
    before = outputs(storage)
    lines[1] = json.dumps({"text": "changed"})
    with pytest.raises(Failure, match="tpu_7/shard_0001.safetensors was made as .*stream_crc32c .* .now ") as failure:
        run_extract(a_work(a_stream(storage, lines), shard_size_gb=SMALL), tiny_models(), str(tmp_path))
    assert failure.value.kind == "stream"
    name = "activations/my-run/tpu_7/shard_0002.safetensors"
    for key in ("spec_hash", "model_fingerprint", "tokens_sha256", "last_sample"):
        work = a_work(a_stream(storage, text_lines(40)), shard_size_gb=SMALL)
        kept = storage.metadata(BUCKET, name)[key]
        storage.metadata(BUCKET, name)[key] = "other"
        with pytest.raises(Failure, match=f"shard_0002.safetensors was made as {key} other .now {kept}"):
            run_extract(work, tiny_models(), str(tmp_path))
        storage.metadata(BUCKET, name)[key] = kept
    assert outputs(storage) == before


def test_a_shard_beyond_the_end_and_a_shard_in_two_formats_are_refused(storage, tmp_path, tiny_models):
    work = a_work(a_stream(storage, text_lines(10)))
    storage.put(BUCKET, "activations/my-run/tpu_7/shard_0002.safetensors", b"")
    with pytest.raises(Failure, match="shard_0002.safetensors exists, but the stream ends with shard 1"):
        run_extract(work, tiny_models(), str(tmp_path))
    storage.put(BUCKET, "activations/my-run/tpu_7/shard_0002.pkl.gz", b"")
    with pytest.raises(Failure, match="are both shard 2"):
        run_extract(work, tiny_models(), str(tmp_path))


def test_rejects_and_summary_of_another_attempt_must_be_the_same(storage, tmp_path, tiny_models):
    work = a_work(a_stream(storage, [*text_lines(10), "junk"]))
    storage.put(BUCKET, "activations/my-run/tpu_7/rejects.jsonl", b"{}\n")
    with pytest.raises(Failure, match="tpu_7/rejects.jsonl is there with other content"):
        run_extract(work, tiny_models(), str(tmp_path))
    assert set(outputs(storage)) == {"rejects.jsonl"}


def changed(storage, name, change):
    """Puts the object there again with other content."""
    name = f"activations/my-run/tpu_7/{name}"
    storage.put(BUCKET, name, change(storage.data(BUCKET, name)), storage.metadata(BUCKET, name))


def summary_with(**changes):
    """As another attempt wrote it; changes of the final shard's entry, or of the whole by `top`."""

    def change(data):
        summary = json.loads(data) | changes.pop("top", {})
        summary["shards"][-1] |= changes
        return json.dumps(summary).encode()

    return change


def test_rejects_that_another_bundle_words_otherwise_are_the_same(storage, tmp_path, tiny_models):
    work = a_work(a_stream(storage, [*text_lines(10), "junk"]))
    run_extract(work, tiny_models(), str(tmp_path))
    shard = "activations/my-run/tpu_7/shard_0001.safetensors"
    changed(storage, "rejects.jsonl", lambda data: json.dumps(json.loads(data) | {"reason": "other"}).encode() + b"\n")
    storage.delete(BUCKET, shard)
    assert run_extract(work, tiny_models(), str(tmp_path)) == "completed"
    changed(storage, "rejects.jsonl", lambda data: data.replace(b'"line": 11', b'"line": 12'))
    storage.delete(BUCKET, shard)
    with pytest.raises(Failure, match="tpu_7/rejects.jsonl is there with other content"):
        run_extract(work, tiny_models(), str(tmp_path))


OTHER_BITS = {"crc32c": "AAAAAA==", "size_bytes": 9, "file_size_mb": 0.01}


def test_a_stream_is_finished_where_other_hardware_summed_it_up_before(storage, tmp_path, tiny_models, tiny_folder):
    """The final shard has other last bits than metadata.json tells of, and says so."""
    spec = {"shard_size_gb": SMALL}
    work = a_work(a_stream(storage, text_lines(40)), **spec)
    run_extract(work, tiny_models(), str(tmp_path))
    final = max(name for name in outputs(storage) if name.startswith("shard_"))
    name = f"activations/my-run/tpu_7/{final}"
    assert "summary" not in storage.metadata(BUCKET, name)
    summary = json.loads(outputs(storage)["metadata.json"])
    stats = {key: values | {"mean": values["mean"] + 1e-7} for key, values in summary["stats"].items()}
    for changes, mark in (
        ({"top": {"code": "another bundle", "versions": {}}}, None),
        ({"top": {"code": "another bundle", "stats": stats}, **OTHER_BITS}, "of another attempt"),
    ):
        changed(storage, "metadata.json", summary_with(**changes))
        storage.delete(BUCKET, name)
        before = outputs(storage)
        assert run_extract(work, tiny_models(), str(tmp_path)) == "completed"
        assert {key: data for key, data in outputs(storage).items() if key != final} == before
        assert storage.metadata(BUCKET, name).get("summary") == mark
        assert verified(storage, tmp_path, tiny_folder, **spec)[:2] == (True, [])
    metadata = storage.metadata(BUCKET, name)
    storage.put(BUCKET, name, storage.data(BUCKET, name), {k: v for k, v in metadata.items() if k != "summary"})
    _, problems, _ = verified(storage, tmp_path, tiny_folder, **spec)
    assert "metadata.json lists other shards, sizes or checksums than are stored" in problems[0]


@pytest.mark.parametrize("changes", [{"rows": 1}, {"top": {"total_samples": 1}}, {"top": {"shards": [OTHER_BITS]}}])
def test_a_summary_of_something_else_is_refused(storage, tmp_path, tiny_models, changes):
    work = a_work(a_stream(storage, text_lines(40)), shard_size_gb=SMALL)
    run_extract(work, tiny_models(), str(tmp_path))
    final = max(name for name in outputs(storage) if name.startswith("shard_"))
    changed(storage, "metadata.json", summary_with(**changes))
    storage.delete(BUCKET, f"activations/my-run/tpu_7/{final}")
    with pytest.raises(Failure, match="tpu_7/metadata.json is there with other content"):
        run_extract(work, tiny_models(), str(tmp_path))
    assert final not in outputs(storage)


def test_running_a_finished_stream_again_changes_nothing(storage, tmp_path, tiny_models):
    work = a_work(a_stream(storage, text_lines(30)), shard_size_gb=SMALL)
    run_extract(work, tiny_models(), str(tmp_path))
    before = {name: o["resource"]["generation"] for (_, name), o in storage.objects.items()}
    control = Control()
    assert run_extract(work, tiny_models(), str(tmp_path), control) == "completed"
    assert {name: o["resource"]["generation"] for (_, name), o in storage.objects.items()} == before
    assert control.progress()["samples_done"] == 30


def test_the_last_shard_is_stored_after_everything_else(storage, tmp_path, tiny_models):
    run_extract(
        a_work(a_stream(storage, [*text_lines(40), "junk"]), shard_size_gb=SMALL),
        tiny_models(),
        str(tmp_path),
    )
    order = sorted(
        outputs(storage),
        key=lambda name: int(storage.objects[BUCKET, f"activations/my-run/tpu_7/{name}"]["resource"]["generation"]),
    )
    shards = sorted(name for name in order if name.startswith("shard_"))
    assert len(shards) > 2
    assert order[-3:] == ["rejects.jsonl", "metadata.json", shards[-1]]
    assert sorted(order[:-3]) == shards[:-1]  # several uploads run at once, in any order
    finals = [storage.metadata(BUCKET, f"activations/my-run/tpu_7/{name}")["final"] for name in shards]
    assert finals == ["false"] * (len(shards) - 1) + ["true"]


def test_two_workers_on_one_stream_at_once_store_nothing_twice(
    storage, tmp_path, tiny_models, tiny_folder, monkeypatch
):
    resource = a_stream(storage, [*text_lines(80), "junk"])
    results = {}

    def work(epoch):
        try:
            results[epoch] = run_extract(
                a_work(resource, epoch=epoch, shard_size_gb=SMALL), tiny_models(), str(tmp_path / str(epoch))
            )
        except Exception as error:  # shown by the assertion below
            results[epoch] = error

    meeting = threading.Barrier(2, timeout=60)

    def list_both(*arguments):
        stored = ExistingShards(*arguments)
        meeting.wait()  # neither has stored anything yet
        return stored

    created = []
    storage.faults = lambda what: created.append(what) if "ifGenerationMatch=0" in what else None
    threads = [threading.Thread(target=work, args=(epoch,)) for epoch in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(extract_module, "ExistingShards", list_both)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {1: "completed", 2: "completed"}
    ok, problems, _ = verified(storage, tmp_path, tiny_folder, shard_size_gb=SMALL)
    assert ok, problems
    stored = outputs(storage)
    assert len(created) > len(stored)  # both did try
    storage.clear("activations/")
    run_extract(a_work(resource, shard_size_gb=SMALL), tiny_models(), str(tmp_path))
    assert outputs(storage) == stored


def test_a_full_disk_is_told_with_the_path_and_what_is_free(storage, tmp_path, tiny_models):
    small = tmp_path / "small"
    small.mkdir()
    if (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True).returncode
        != 0
    ):
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(
            Failure, match=rf"Failed to write {small}/scratch/rejects.jsonl: the disk is full \(\d+ bytes free\)"
        ) as failure:
            run_extract(a_work(a_stream(storage, ["junk"] * 2000)), tiny_models(), str(small))
        assert failure.value.kind == "infrastructure"
        with pytest.raises(Failure, match=rf"Failed to write {small}/scratch/stream: the disk is full"):
            run_extract(a_work(a_stream(storage, [json.dumps({"text": "x" * 100_000})])), tiny_models(), str(small))
        assert outputs(storage) == {}
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_model_in_a_bucket_is_copied_once(storage, tmp_path, tiny_folder):
    for name in os.listdir(tiny_folder):
        with open(os.path.join(tiny_folder, name), "rb") as file:
            storage.put(BUCKET, f"models/tiny/{name}", file.read())
    storage.put(BUCKET, "models/tiny/pytorch_model.bin", b"pickled")
    work = a_work(a_stream(storage, text_lines(3)), model=f"gs://{BUCKET}/models/tiny/")
    model = a_model(work.spec, str(tmp_path), bucket())
    assert not any("pytorch_model" in request for request in storage.requests if "alt=media" in request)
    downloads = sum("alt=media" in request for request in storage.requests)
    assert a_model(work.spec, str(tmp_path), bucket()).fingerprint == model.fingerprint
    assert sum("alt=media" in request for request in storage.requests) == downloads
    local = a_model(a_work(a_stream(storage, text_lines(3)), model=tiny_folder).spec, str(tmp_path), bucket())
    assert local.fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("/no/such/folder", "there is no such folder on this machine"),
        ("gs://a-bucket/models/absent", "there is no model folder of that name"),
        ("gs://a-bucket/models/half", "it has no config.json"),
    ],
)
def test_a_model_that_is_missing_is_named(storage, tmp_path, model, reason):
    storage.put(BUCKET, "models/half/tokenizer.json", b"{}")
    with pytest.raises(Failure, match=f"the model {model}.*({reason})") as failure:
        a_model(a_work(a_stream(storage, text_lines(3)), model=model).spec, str(tmp_path), bucket())
    assert failure.value.kind == "model"


@pytest.mark.parametrize(
    "change",
    [{"sites": ["logits"]}, {"tokens": "first"}, {"dtype": "int4"}, {"format": "zarr"}, {"over_long": "cut"}],
)
def test_a_spec_that_this_worker_cannot_honour_is_refused(storage, change):
    with pytest.raises(Failure, match=next(iter(change))) as failure:
        a_work(a_stream(storage, text_lines(3)), **change)
    assert failure.value.kind == "model"
