"""Opening a run: its metadata without a body, its place in a folder or a bucket, and incomplete runs."""

import json
import os
import shutil
import warnings

import numpy as np
import pytest

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.format.files import CloudFile, LocalFile
from memory import MIB, at_most
from shuffled_runs import as_set
from stored_run import put_in_bucket, store_run, summarise

pytestmark = pytest.mark.slow


class Counted:
    """Counts the bytes that are read from files of any kind."""

    def __init__(self, monkeypatch):
        self.bytes, self.reads = 0, 0
        for kind in (LocalFile, CloudFile):
            monkeypatch.setattr(kind, "read", self._wrap(kind.read))

    def _wrap(self, read):
        def counted(file, begin, end):
            data = read(file, begin, end)
            self.bytes, self.reads = self.bytes + len(data), self.reads + 1
            return data

        return counted


@pytest.fixture
def counted(monkeypatch):
    return Counted(monkeypatch)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst", "pkl.gz"])
def test_a_run_is_opened_without_reading_a_body(tmp_path, counted, file_format):
    stored = store_run(tmp_path, file_format, "fp32", d_model=512, layers=(0, 2, 5), streams=(7,))
    size = sum(file.stat().st_size for file in tmp_path.rglob("shard_*"))
    run = gleaner_reader.open(tmp_path)
    assert run.is_complete and run.problems == []
    assert (run.sites, run.layers, run.d_model, run.dtype) == (("resid_post",), (0, 2, 5), 512, "fp32")
    assert [os.path.relpath(shard.url, tmp_path) for shard in run.shards] == [
        f"tpu_{stream}/shard_{number:04d}.{file_format}" for stream in (7,) for number in (1, 2, 3)
    ]
    assert (run.num_samples, run.num_tokens) == (len(stored.samples), sum(plan.tokens for plan in stored.plans))
    assert run.num_rows == len(stored.rows("resid_post.0"))
    assert run.manifest["result"] == {"shards": 3}
    assert counted.bytes < min(size / 4, 3 * 150_000)


def test_shards_are_ordered_by_number_instead_of_name(tmp_path):
    store_run(tmp_path, streams=(2, 10), shards=11, count=4)
    run = gleaner_reader.open(tmp_path)
    assert list(run.streams) == [2, 10]
    assert [shard.metadata["shard"] for shard in run.shards] == [str(number) for number in range(1, 12)] * 2


def test_a_run_in_a_bucket_equals_the_run_in_a_folder(tmp_path, storage):
    stored = store_run(tmp_path, keep=True)
    put_in_bucket(storage, stored.folder, "a-bucket", "activations/my-run")
    storage.put("a-bucket", "activations/my-run-2/tpu_0/shard_0001.safetensors", b"not of this run")
    run = gleaner_reader.open("gs://a-bucket/activations/my-run/")
    assert run.is_complete
    assert run.url == "gs://a-bucket/activations/my-run"
    for array, expected in zip(run.layer(2, dtype="float32"), stored.layers["resid_post.2"], strict=True):
        assert (array == expected).all()
    assert run.sample("007", 61).kept == {"n": 61, "text": "é"}
    shard = gleaner_reader.open("gs://a-bucket/activations/my-run/tpu_7/shard_0002.safetensors")
    assert shard.num_rows == stored.plans[4].rows


def edit_entries(folder, change):
    for path in folder.glob("tpu_*/metadata.json"):
        summary = json.loads(path.read_text())
        summary["shards"] = [change(entry) for entry in summary["shards"]]
        path.write_text(json.dumps(summary))


def edit_tensors(**changes):
    return lambda folder: edit_entries(folder, lambda entry: entry | {"tensors": changes or [1]})


@pytest.mark.parametrize(("file_format", "most"), [("safetensors", 24), ("safetensors.zst", 24 + 10 + 2)])
def test_the_first_row_of_a_run_needs_few_requests_however_many_shards_it_has(tmp_path, storage, file_format, most):
    """A file in zstd begins with one more, for the table of its frames."""
    stored = store_run(tmp_path, file_format, "fp16", streams=range(10), shards=9, count=4, keep=True)
    summarise(tmp_path)
    put_in_bucket(storage, stored.folder, "a-bucket", "activations/my-run")
    storage.requests.clear()
    run = gleaner_reader.open("gs://a-bucket/activations/my-run")
    assert (run.layer(0, dtype="float32")[-1] == stored.rows("resid_post.0")[-1]).all()
    assert len(storage.requests) <= most
    assert run.is_complete and run.num_samples == len(stored.samples)
    batches = list(run.batches(2, batch_rows=50, dtype="float32", drop_last=False))
    assert as_set(np.concatenate(batches)) == as_set(stored.rows("resid_post.2"))
    storage.requests.clear()
    assert gleaner_reader.open("gs://a-bucket/activations/my-run").sample(7, 8).kept == stored.samples[7, 8]["kept"]
    assert len(storage.requests) <= most


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("an earlier release", lambda f: edit_entries(f, lambda e: {k: e[k] for k in e if k != "tensors"})),
        ("no summary", lambda f: remove(f, "tpu_0/metadata.json")),
        ("no summary of shards", lambda f: (f / "tpu_7/metadata.json").write_text('{"shards": 3}')),
        ("no JSON", lambda f: (f / "tpu_7/metadata.json").write_text("{")),
        ("another size", lambda f: edit_entries(f, lambda e: e | {"size_bytes": 9, "header_bytes": 8})),
        ("another shard", lambda f: edit_entries(f, lambda e: e | {"header_bytes": e["header_bytes"] + 8})),
        ("a header of no size", lambda f: edit_entries(f, lambda e: e | {"header_bytes": "8"})),
        ("no samples", lambda f: edit_entries(f, lambda e: e | {"first_sample": None})),
        ("no tensors", edit_tensors()),
        ("tensors without places", edit_tensors(sample_idx={"dtype": "I64", "shape": [3]})),
        (
            "a tensor larger than any file",
            edit_tensors(x={"dtype": "I64", "shape": [1 << 50], "data_offsets": [0, 1 << 53]}),
        ),
        (
            "a last shard of another attempt",
            lambda f: edit_entries(
                f, lambda e: e | {"tensors": {}} if e["filename"] == "shard_0003.safetensors" else e
            ),
        ),
    ],
)
def test_headers_that_metadata_json_does_not_repeat_are_read_from_the_shards(tmp_path, name, change):
    for file_format in ("safetensors", "safetensors.zst"):
        if file_format == "safetensors" or name != "another shard":  # the size of the content is in the file alone
            stored = store_run(tmp_path / file_format, file_format)
            summarise(tmp_path / file_format)
            change(tmp_path / file_format)
            run = gleaner_reader.open(tmp_path / file_format)
            assert (np.concatenate(list(run.layer(0, dtype="float32"))) == stored.rows("resid_post.0")).all()
            assert (run.sample(7, 61).token_ids == stored.samples[7, 61]["token_ids"]).all()


def test_a_shard_that_was_replaced_after_it_was_opened_is_refused(tmp_path, storage):
    stored = store_run(tmp_path, shards=1, streams=(0,))
    put_in_bucket(storage, stored.folder, "a-bucket", "activations/my-run")
    run = gleaner_reader.open("gs://a-bucket/activations/my-run")
    name = "activations/my-run/tpu_0/shard_0001.safetensors"
    storage.put("a-bucket", name, storage.data("a-bucket", name))
    with pytest.raises(ShardError, match=f"{name} cannot be read: it was replaced or deleted after it was opened"):
        run.layer(0)[0]


def test_the_folder_of_one_stream_opens_as_a_run(tmp_path):
    stored = store_run(tmp_path)
    shutil.copy(tmp_path / "manifest.json", tmp_path / "tpu_7")
    with pytest.warns(UserWarning, match="3 of its 6 shards are here"):
        run = gleaner_reader.open(tmp_path / "tpu_7")
    assert (run.sample(7, 61).activations["resid_post.0"] == stored.samples[7, 61]["activations"]["resid_post.0"]).all()


def remove(folder, *names):
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("a gap", lambda f: remove(f, "tpu_7/shard_0002.safetensors"), "shard 2 of stream 7 is missing"),
        ("no first", lambda f: remove(f, "tpu_0/shard_0001.safetensors"), "shard 1 of stream 0 is missing"),
        (
            "no last",
            lambda f: remove(f, "tpu_0/shard_0003.safetensors"),
            "stream 0 ends with shard 2, which is not its last",
        ),
        ("no manifest", lambda f: remove(f, "manifest.json"), "it has no manifest.json"),
        ("not completed", lambda f: (f / "manifest.json").write_text("{}"), "its manifest has no result"),
        ("no stream", lambda f: shutil.rmtree(f / "tpu_0"), "3 of its 6 shards are here"),
    ],
)
def test_an_incomplete_run_opens_with_a_warning_that_names_the_missing_parts(tmp_path, name, change, problem):
    stored = store_run(tmp_path)
    change(tmp_path)
    with pytest.warns(UserWarning, match=problem):
        run = gleaner_reader.open(tmp_path)
    assert not run.is_complete
    assert any(problem in said for said in run.problems)
    assert sum(len(array) for array in run.layer(0)) == run.num_rows > 0
    assert set(run.streams) <= {0, 7} and (7, 1) in stored.samples


def test_a_shard_with_a_huge_number_needs_no_memory_for_the_numbers_before_it(tmp_path):
    store_run(tmp_path)
    os.rename(tmp_path / "tpu_7/shard_0003.safetensors", tmp_path / "tpu_7/shard_1000000.safetensors")
    with at_most(16 * MIB), pytest.warns(UserWarning, match="shard 3 of stream 7 is missing, and 999996 more"):
        gleaner_reader.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "where", "error", "says"),
    [
        ("no folder", "absent", FileNotFoundError, "there is no such folder"),
        ("an empty folder", ".", FileNotFoundError, "there are no shards"),
        ("no shard", "absent.safetensors", FileNotFoundError, "absent.safetensors"),
    ],
)
def test_a_missing_folder_file_or_shard_is_named(tmp_path, name, where, error, says):
    with pytest.raises(error, match=says):
        gleaner_reader.open(tmp_path / where)


def test_a_missing_object_in_a_bucket_is_named(storage):
    with pytest.raises(FileNotFoundError, match="there are no objects of that name"):
        gleaner_reader.open("gs://a-bucket/activations/absent")
    with pytest.raises(FileNotFoundError, match="there is no such object"):
        gleaner_reader.open("gs://a-bucket/activations/absent/tpu_0/shard_0001.pkl.gz")


@pytest.mark.parametrize("text", ["[1]", "{", '"x"', "[" * 100_000])
def test_a_malformed_manifest_is_refused(tmp_path, text):
    store_run(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ShardError, match="manifest.json is not a manifest"):
        gleaner_reader.open(tmp_path)


def test_shards_of_two_runs_in_one_folder_are_refused(tmp_path):
    store_run(tmp_path / "a")
    store_run(tmp_path / "b", layers=(0, 1))
    shutil.copy(tmp_path / "b/tpu_0/shard_0002.safetensors", tmp_path / "a/tpu_7/shard_0002.safetensors")
    run = gleaner_reader.open(tmp_path / "a")
    with pytest.raises(ShardError, match=r"tpu_7/shard_0002.safetensors holds layers \[0, 1\] of.*not of one run"):
        _ = run.num_rows


def test_two_objects_of_the_same_shard_number_are_refused(tmp_path):
    store_run(tmp_path)
    store_run(tmp_path, "pkl.gz", "fp32")
    with pytest.raises(ShardError, match="are both shard"):
        gleaner_reader.open(tmp_path)


def test_a_truncated_shard_is_named(tmp_path):
    stored = store_run(tmp_path)
    path = tmp_path / "tpu_7/shard_0002.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    run = gleaner_reader.open(tmp_path)
    with pytest.raises(ShardError, match=f"{path} cannot be read: its header describes"):
        list(run.layer(0))
    assert (run.sample(0, 1).token_ids == stored.samples[0, 1]["token_ids"]).all()


def test_reading_a_layer_reads_only_the_bytes_of_this_layer(tmp_path, counted):
    layers = tuple(range(12))
    store_run(tmp_path, layers=layers, d_model=512, streams=(7,))
    size = sum(path.stat().st_size for path in tmp_path.rglob("shard_*"))
    run = gleaner_reader.open(tmp_path)
    _ = run.num_rows
    before = counted.bytes
    assert sum(array.nbytes for array in run.layer(5)) == counted.bytes - before
    assert abs((counted.bytes - before) / size - 1 / len(layers)) < 0.01


def test_verification_reads_each_layer_once(tmp_path, counted):
    store_run(tmp_path, layers=(0, 1, 2, 3), d_model=1024)
    run = gleaner_reader.open(tmp_path)
    size = next(iter(run.layer(0))).nbytes
    rows = run.layer(0, verify=True)
    rows[5]
    before = counted.bytes
    assert rows[5].nbytes == counted.bytes - before < size / 10


def test_reading_a_sample_reads_only_the_bytes_of_this_sample(tmp_path, counted):
    store_run(tmp_path, layers=(0, 1, 2, 3), d_model=1024)
    run = gleaner_reader.open(tmp_path)
    run.sample(7, 60)
    before = counted.bytes
    sample = run.sample(7, 61)
    assert sum(array.nbytes for array in sample.activations.values()) == counted.bytes - before


@pytest.mark.parametrize(("dtype", "row_bytes"), [("int8", 1024), ("bf16", 2048), ("fp32", 4096)])
def test_one_request_reads_rows_with_a_gap_below_64_kib(tmp_path, counted, dtype, row_bytes):
    store_run(tmp_path, dtype=dtype, d_model=1024)
    rows, gap = gleaner_reader.open(tmp_path).layer(0), (1 << 16) // row_bytes

    def bytes_of(*numbers: int) -> int:
        before = counted.bytes
        _ = rows[list(numbers)]
        return counted.bytes - before

    bytes_of(0)
    assert bytes_of(0, gap) > 1 << 16
    assert bytes_of(0, gap + 1) < 3 * row_bytes


@pytest.mark.long
def test_reading_a_layer_of_zstd_reads_only_the_frames_of_this_layer(tmp_path, counted):
    layers = tuple(range(8))
    store_run(tmp_path, "safetensors.zst", layers=layers, d_model=2048, streams=(0,), shards=1, count=300)
    size = next(tmp_path.rglob("shard_*")).stat().st_size
    run = gleaner_reader.open(tmp_path)
    _ = run.num_rows
    before = counted.bytes
    list(run.layer(5))
    assert abs((counted.bytes - before) / size - 1 / len(layers)) < 0.02
    before = counted.bytes
    run.layer(5)[1000]
    assert counted.bytes - before < 1 << 22


def test_the_manifest_of_a_run_is_the_content_of_manifest_json(tmp_path):
    store_run(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text()) == gleaner_reader.open(tmp_path).manifest
