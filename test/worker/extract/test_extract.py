"""Extractions of whole streams, with the real storage client against the fake bucket."""

import json
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build import BUCKET, SMALL, a_model, a_stream, a_work, bucket, fails, outputs, run_extract, text_lines
from gleaner_reader.run.formats import read_facts
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.failures import Failure
from read_shards import read_stream
from stored_stream import rejects

pytestmark = pytest.mark.slow


@pytest.mark.long
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.integers(1, 40), min_size=1, max_size=40),
    st.integers(1, 300),
    st.sampled_from(["safetensors", "safetensors.zst"]),
)
def test_any_lines_are_stored_once_without_a_gap_in_the_indices(
    storage, extract, tiny_models, lengths, tokens_per_shard, file_format
):
    storage.clear("activations/", "datasets/")
    tokens = [n and [(7 * i + j) % 600 for j in range(n)] for i, n in enumerate(lengths)]
    lines = ["junk" if ids is None else json.dumps({"tokens": ids}) for ids in tokens]
    spec = {"format": file_format, "shard_size_gb": tokens_per_shard * 200 / 1e9, "layers": [0], "max_seq_length": 64}
    model = tiny_models(format=file_format, layers=[0], max_seq_length=64)
    assert extract(lines, model=model, **spec) == "completed"
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


def test_every_sample_of_a_line_is_counted(verify, storage, tmp_path, tiny_folder):
    task = {"train": [{"input": [[1, 2]], "output": [[2, 1]]}] * 2, "test": [{"input": [[3]], "output": [[4]]}]}
    lines = [json.dumps({"task_id": str(number)} | task) for number in range(4)]
    lines[2] = "junk"
    spec = {"model": tiny_folder, "record": {"predictions_per_task": 3}, "layers": [1], "max_seq_length": 1024}
    spec["shard_size_gb"] = 1e-5
    work = a_work(a_stream(storage, lines), **spec)
    control = ExtractionState()
    assert run_extract(work, a_model(work.spec, str(tmp_path), bucket()), str(tmp_path), control) == "completed"
    assert list(read_stream(outputs(storage), "safetensors")) == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    assert [(r["line"], r["sample_idx"], r["samples"]) for r in rejects(storage)] == [(3, 6, 3)]
    assert (control.progress()["samples_done"], control.progress()["samples_total"]) == (12, 12)
    summary = json.loads(outputs(storage)["metadata.json"])
    assert (summary["total_samples"], summary["total_rejected"]) == (9, 3)
    report, problems = verify(**spec)
    assert report["ok"], problems
    assert (report["samples"], report["stored_once"], report["rejected"]) == (12, 9, 3)


def test_metadata_json_has_the_fields_of_the_earlier_tools(storage, extract):
    extract([*text_lines(30), "junk"], shard_size_gb=SMALL)
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
        data = stored[name]
        assert (
            read_facts(lambda begin, end, data=data: data[begin:end], len(data), "safetensors").items() <= entry.items()
        )
        assert {
            "shard_id",
            "local_path",
            "file_size_mb",
            "buffer_size_mb",
            "samples_per_layer",
            "total_samples_in_shard",
        } <= set(entry)


def test_the_last_shard_is_stored_after_everything_else(storage, extract):
    extract([*text_lines(40), "junk"], shard_size_gb=SMALL)
    order = sorted(
        outputs(storage),
        key=lambda name: int(storage.objects[BUCKET, f"activations/my-run/tpu_7/{name}"]["resource"]["generation"]),
    )
    shards = sorted(name for name in order if name.startswith("shard_"))
    assert len(shards) > 2
    assert order.index("samples.json") < order.index(shards[0])
    assert order[-3:] == ["rejects.jsonl", "metadata.json", shards[-1]]
    assert sorted(order[:-3]) == ["samples.json", *shards[:-1]]  # several uploads run at once, in any order
    finals = [storage.metadata(BUCKET, f"activations/my-run/tpu_7/{name}")["final"] for name in shards]
    assert finals == ["false"] * (len(shards) - 1) + ["true"]


def test_a_full_disk_is_reported_with_the_path_and_the_free_bytes(storage, tmp_path, tiny_models):
    small = tmp_path / "small"
    small.mkdir()
    if (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True).returncode
        != 0
    ):
        pytest.skip("mounting a small disk needs root")
    try:
        with fails(
            "infrastructure", rf"Failed to write {small}/scratch/rejects.jsonl: the disk is full \(\d+ bytes free\)"
        ):
            run_extract(a_work(a_stream(storage, ["junk"] * 2000)), tiny_models(), str(small))
        with pytest.raises(Failure, match=rf"Failed to write {small}/scratch/stream: the disk is full"):
            run_extract(a_work(a_stream(storage, [json.dumps({"text": "x" * 100_000})])), tiny_models(), str(small))
        assert outputs(storage) == {}
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
