"""A stream in, shards out, on the real client against the fake bucket."""

import gzip
import json
import os
import subprocess
import threading

import numpy as np
import pytest
import safetensors.numpy

from build import BUCKET, a_stream, a_work, bucket, outputs, put_manifest, run_extract, shard_gb, text_lines
from gleaner_worker import extract as extract_module
from gleaner_worker.control import Control
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model.loaded import load_model
from gleaner_worker.verify.safe_pickle import load_shard
from gleaner_worker.verify.run import verify_run

SMALL = shard_gb(400)


def rejects(storage):
    text = outputs(storage).get("rejects.jsonl", b"").decode()
    return [json.loads(line) for line in text.splitlines()]


def verified(storage, tmp_path, folder, **spec):
    put_manifest(storage, model=folder, **spec)
    report = verify_run(bucket(), "my-run", str(tmp_path), lambda _: None)
    return report["ok"], report["streams"][0]["problems"] + report["problems"], report


@pytest.mark.parametrize(
    ("dtype", "file_format"), [("bf16", "safetensors"), ("fp32", "safetensors"), ("fp32", "pkl.gz")]
)
def test_every_sample_is_stored_once_with_its_own_activations(
    storage, tmp_path, tiny_models, tiny_folder, dtype, file_format
):
    spec = {"dtype": dtype, "format": file_format, "shard_size_gb": SMALL, "layers": [0, 2]}
    model = tiny_models(**spec)
    work = a_work(a_stream(storage, text_lines(60)), **spec)
    control = Control()
    assert run_extract(work, model, str(tmp_path), control) == "completed"
    ok, problems, report = verified(storage, tmp_path, tiny_folder, **spec)
    assert ok, problems
    assert (report["samples"], report["stored_once"]) == (60, 60)
    stored = outputs(storage)
    shards = sorted(name for name in stored if name.startswith("shard_"))
    assert len(shards) > 2
    assert set(stored) == {*shards, "metadata.json"}
    progress = control.progress()
    assert (progress["samples_done"], progress["samples_total"], progress["shards_done"]) == (
        60,
        60,
        len(shards),
    )
    assert progress["tokens_done"] == report["tokens"]
    # What is stored for a sample is what the model computes for it alone.
    from gleaner_worker.records.samples import read_samples

    (tmp_path / "s").write_bytes(storage.data(BUCKET, work.object))
    sample = list(read_samples(str(tmp_path / "s"), "s", model.reader))[37]
    alone = safetensors_of_one(model, sample)
    found = find_sample(stored, shards, 37, file_format, tmp_path)
    assert set(found) == {0, 2}
    for layer, values in found.items():
        assert np.linalg.norm(values - alone[layer]) <= (1e-5 if dtype == "fp32" else 2e-2) * np.linalg.norm(
            alone[layer]
        )


def safetensors_of_one(model, sample):
    from gleaner_worker.model.loaded import run_batch
    from gleaner_worker.shards.plan import ShardPlan, plan_batches

    (batch,) = plan_batches([len(sample.token_ids)], 512)
    out = np.asarray(run_batch(model, ShardPlan(1, 37, 37, (sample,), True), batch)).astype(np.float32)
    return {layer: out[i, 0, : len(sample.token_ids)] for i, layer in enumerate(model.layers)}


def find_sample(stored, shards, index, file_format, tmp_path):
    for name in shards:
        (tmp_path / "x").write_bytes(stored[name])
        if file_format == "pkl.gz":
            data = load_shard(str(tmp_path / "x"), 10**8)
            if any(e["sample_idx"] == index for e in data[0]):
                return {
                    layer: next(e["activation"] for e in entries if e["sample_idx"] == index)
                    for layer, entries in data.items()
                }
        else:
            data = safetensors.numpy.load_file(tmp_path / "x")
            where = np.flatnonzero(data["sample_idx"] == index)
            if len(where):
                begin, end = data["sample_offsets"][where[0]], data["sample_offsets"][where[0] + 1]
                return {
                    int(key[11:]): rows[begin:end].astype(np.float32)
                    for key, rows in data.items()
                    if key.startswith("resid_post.")
                }
    raise AssertionError(f"sample {index} is nowhere")


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
        ("gzip", gzip.compress(b"\n".join(BAD_LINES))),
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


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", gzip.compress(b"")])
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
    assert order == [*shards[:-1], "rejects.jsonl", "metadata.json", shards[-1]]
    finals = [storage.metadata(BUCKET, f"activations/my-run/tpu_7/{name}")["final"] for name in shards]
    assert finals == ["false"] * (len(shards) - 1) + ["true"]


def test_two_workers_on_one_stream_at_once_store_nothing_twice(storage, tmp_path, tiny_models, tiny_folder):
    resource = a_stream(storage, [*text_lines(80), "junk"])
    results = {}

    def work(epoch):
        try:
            results[epoch] = run_extract(
                a_work(resource, epoch=epoch, shard_size_gb=SMALL), tiny_models(), str(tmp_path / str(epoch))
            )
        except Exception as error:  # shown by the assertion below
            results[epoch] = error

    created = []
    storage.faults = lambda what: created.append(what) if "ifGenerationMatch=0" in what else None
    threads = [threading.Thread(target=work, args=(epoch,)) for epoch in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {1: "completed", 2: "completed"}
    ok, problems, _ = verified(storage, tmp_path, tiny_folder, shard_size_gb=SMALL)
    assert ok, problems
    stored = outputs(storage)
    assert len(created) > len(stored)  # both did try
    storage.objects = {key: value for key, value in storage.objects.items() if key[1].startswith("datasets/")}
    run_extract(a_work(resource, shard_size_gb=SMALL), tiny_models(), str(tmp_path))
    assert outputs(storage) == stored


def test_a_worker_that_lost_its_lease_writes_nothing_more(storage, tmp_path, tiny_models):
    control = Control()

    def lose(what):
        if "/upload/" in what:
            control.request("stop")

    storage.faults = lose
    with pytest.raises(LeaseLost):
        run_extract(
            a_work(a_stream(storage, text_lines(80)), shard_size_gb=SMALL),
            tiny_models(),
            str(tmp_path),
            control,
        )
    assert set(outputs(storage)) == {"shard_0001.safetensors"}  # the one that was on its way


def test_told_to_drain_it_ends_after_the_shard_in_hand(storage, tmp_path, tiny_models):
    control = Control()
    storage.faults = lambda what: control.request("drain") if "/upload/" in what else None
    work = a_work(a_stream(storage, text_lines(200)), shard_size_gb=SMALL)
    assert run_extract(work, tiny_models(), str(tmp_path), control) == "drained"
    shards = [name for name in outputs(storage) if name.startswith("shard_")]
    assert "metadata.json" not in outputs(storage)
    assert 1 <= len(shards) <= 4
    storage.faults = lambda what: None
    assert run_extract(work, tiny_models(), str(tmp_path)) == "completed"


def interrupt_after(monkeypatch, batches):
    """Asks for a flush when that many batches are in."""
    collect = extract_module._collect

    def counting(shard, batch, output, model, control):
        collect(shard, batch, output, model, control)
        counting.done += 1
        if counting.done == batches:
            control.request("flush")

    counting.done = 0
    monkeypatch.setattr(extract_module, "_collect", counting)
    return counting


def test_a_preempted_shard_goes_on_where_it_was_and_comes_out_the_same(
    storage, tmp_path, tiny_models, tiny_folder, monkeypatch
):
    resource = a_stream(storage, text_lines(600))
    run_extract(a_work(resource), tiny_models(), str(tmp_path))
    undisturbed = outputs(storage)
    storage.objects = {key: value for key, value in storage.objects.items() if key[1].startswith("datasets/")}
    computed = 0
    for epoch in range(1, 20):
        counting = interrupt_after(monkeypatch, 2)
        outcome = run_extract(a_work(resource, epoch=epoch), tiny_models(), str(tmp_path))
        computed += counting.done
        monkeypatch.undo()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage.url)
        if outcome == "completed":
            break
        assert outcome == "preempted"
        assert f"partials/my-run/tpu_7/shard_0001.e{epoch}.safetensors" in storage.names(BUCKET)
    assert epoch > 2
    assert outputs(storage) == undisturbed
    storage.objects = {key: value for key, value in storage.objects.items() if key[1].startswith("datasets/")}
    counting = interrupt_after(monkeypatch, 10**9)
    run_extract(a_work(resource), tiny_models(), str(tmp_path))
    assert computed == counting.done  # no batch was computed twice


@pytest.mark.parametrize("damage", ["bytes", "identity", "batches"])
def test_a_partial_that_does_not_fit_is_passed_over(storage, tmp_path, tiny_models, monkeypatch, damage):
    resource = a_stream(storage, text_lines(600))
    run_extract(a_work(resource), tiny_models(), str(tmp_path))
    undisturbed = outputs(storage)
    storage.objects = {key: value for key, value in storage.objects.items() if key[1].startswith("datasets/")}
    interrupt_after(monkeypatch, 2)
    assert run_extract(a_work(resource), tiny_models(), str(tmp_path)) == "preempted"
    monkeypatch.undo()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage.url)
    name = "partials/my-run/tpu_7/shard_0001.e1.safetensors"
    metadata = storage.metadata(BUCKET, name)
    if damage == "bytes":
        storage.put(BUCKET, name, storage.data(BUCKET, name)[:-10], metadata)
    elif damage == "identity":
        metadata["tokens_sha256"] = "other"
    else:
        metadata["batches"] = "1"
    assert run_extract(a_work(resource, epoch=2), tiny_models(), str(tmp_path)) == "completed"
    assert outputs(storage) == undisturbed


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
            Failure, match=rf"Failed to write {small}/scratch/shard_0001: the disk is full \(\d+ bytes free\)"
        ) as failure:
            run_extract(a_work(a_stream(storage, text_lines(100))), tiny_models(), str(small))
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
    model = load_model(work.spec, str(tmp_path), bucket())
    assert not any("pytorch_model" in request for request in storage.requests if "alt=media" in request)
    downloads = sum("alt=media" in request for request in storage.requests)
    assert load_model(work.spec, str(tmp_path), bucket()).fingerprint == model.fingerprint
    assert sum("alt=media" in request for request in storage.requests) == downloads
    local = load_model(a_work(a_stream(storage, text_lines(3)), model=tiny_folder).spec, str(tmp_path), bucket())
    assert local.fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("Qwen/Qwen2.5-0.5B", "models from a hub are not supported yet: |copy the model's folder to gs://"),
        ("/no/such/folder", "there is no such folder on this machine"),
        ("gs://a-bucket/models/absent", "there is no model folder of that name"),
        ("gs://a-bucket/models/half", "it has no config.json"),
    ],
)
def test_a_model_that_is_missing_is_named(storage, tmp_path, model, reason):
    storage.put(BUCKET, "models/half/tokenizer.json", b"{}")
    with pytest.raises(Failure, match=f"the model {model}.*({reason})") as failure:
        load_model(a_work(a_stream(storage, text_lines(3)), model=model).spec, str(tmp_path), bucket())
    assert failure.value.kind == "model"


@pytest.mark.parametrize(
    "change",
    [{"sites": ["logits"]}, {"tokens": "first"}, {"dtype": "int4"}, {"format": "zarr"}, {"over_long": "cut"}],
)
def test_a_spec_that_this_worker_cannot_honour_is_refused(storage, change):
    with pytest.raises(Failure, match=next(iter(change))) as failure:
        a_work(a_stream(storage, text_lines(3)), **change)
    assert failure.value.kind == "model"
