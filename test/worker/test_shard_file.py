import gzip
import json
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from environment import HERE, WORKER
from gleaner_worker.shards.plan import ShardPlan
from gleaner_worker.verify.safe_pickle import Unsafe, load_shard
from gleaner_worker.records.samples import Sample
from gleaner_worker.shards.write import write_shard


def a_plan(lengths=(3, 1, 4)):
    samples = tuple(Sample(i * 2, np.arange(n, dtype=np.int32) + i, f"text {i}", False) for i, n in enumerate(lengths))
    return ShardPlan(1, 0, 2 * len(lengths), samples, True)


def rows(tokens, layers=(0, 2), dtype=np.float32):
    return {layer: np.random.default_rng(layer).standard_normal((tokens, 6)).astype(dtype) for layer in layers}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_safetensors_shards_load_with_the_library(tmp_path, dtype):
    path, layers = str(tmp_path / "s"), rows(8, dtype=dtype)
    write_shard(path, "safetensors", a_plan(), layers, {"b": "2", "a": "1"})
    loaded = safetensors.numpy.load_file(path)
    assert set(loaded) == {"resid_post.0", "resid_post.2", "token_ids", "sample_offsets", "sample_idx"}
    for layer, values in layers.items():
        assert loaded[f"resid_post.{layer}"].dtype == dtype
        assert np.array_equal(loaded[f"resid_post.{layer}"], values)
    assert (loaded["token_ids"].dtype, loaded["token_ids"].tolist()) == (np.int32, [0, 1, 2, 1, 2, 3, 4, 5])
    assert (loaded["sample_offsets"].dtype, loaded["sample_offsets"].tolist()) == (np.int64, [0, 3, 4, 8])
    assert (loaded["sample_idx"].dtype, loaded["sample_idx"].tolist()) == (np.int64, [0, 2, 4])
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"a": "1", "b": "2"}


def test_a_shard_without_samples_loads(tmp_path):
    path = str(tmp_path / "s")
    write_shard(path, "safetensors", a_plan(()), rows(0), {})
    loaded = safetensors.numpy.load_file(path)
    assert loaded["resid_post.0"].shape == (0, 6)
    assert loaded["sample_offsets"].tolist() == [0]


def test_every_tensor_is_aligned(tmp_path):
    path = str(tmp_path / "s")
    write_shard(path, "safetensors", a_plan(), rows(8, dtype=ml_dtypes.bfloat16), {"odd": "x" * 5})
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    assert size % 8 == 0
    itemsize = {"I64": 8, "I32": 4, "BF16": 2}
    assert all(
        entry["data_offsets"][0] % itemsize[entry["dtype"]] == 0
        for name, entry in header.items()
        if name != "__metadata__"
    )


# As in the guide that the format comes from, with nothing but numpy to help it.
SNIPPET = """
import pickle, gzip, sys
sys.modules['ml_dtypes'] = None
with gzip.open(sys.argv[1], 'rb') as f:
    data = pickle.load(f)
def facts(e):
    values = e['activation']
    return e['sample_idx'], values.shape, str(values.dtype), e['shape'], e['text_preview'], float(values.sum())
print({layer: [facts(e) for e in entries] for layer, entries in data.items()})
"""


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_pickle_shards_load_with_the_seeds_own_snippet_and_numpy_alone(tmp_path, dtype):
    path, layers = str(tmp_path / "shard_0001.pkl.gz"), rows(8, dtype=dtype)
    write_shard(path, "pkl.gz", a_plan(), layers, {})
    out = subprocess.run([sys.executable, "-c", SNIPPET, path], capture_output=True, text=True, check=True).stdout
    assert (
        eval(out)
        == {  # our own output, a literal
            layer: [
                (0, (3, 6), "float32", (3, 6), "text 0", float(values[:3].astype(np.float32).sum())),
                (2, (1, 6), "float32", (1, 6), "text 1", float(values[3:4].astype(np.float32).sum())),
                (4, (4, 6), "float32", (4, 6), "text 2", float(values[4:].astype(np.float32).sum())),
            ]
            for layer, values in layers.items()
        }
    )


@pytest.mark.parametrize("file_format", ["safetensors", "pkl.gz"])
def test_the_same_values_make_the_same_bytes_in_every_process(tmp_path, file_format):
    script = f"""
import sys; sys.path[:0] = {[WORKER, HERE]!r}
from test_shard_file import a_plan, rows
from gleaner_worker.shards.write import write_shard
write_shard(sys.argv[1], {file_format!r}, a_plan(), rows(8), {{f"key{{i}}": str(i) for i in range(20)}})
"""
    contents = set()
    for attempt in range(3):
        path = str(tmp_path / f"{attempt}-{'x' * attempt}")
        subprocess.run([sys.executable, "-c", script, path], check=True)
        contents.add(open(path, "rb").read())
    assert len(contents) == 1


def gzipped(tmp_path, data):
    path = str(tmp_path / "p")
    with gzip.open(path, "wb") as file:
        file.write(data)
    return path


def test_the_safe_reader_gives_what_the_writer_wrote(tmp_path):
    path, layers = str(tmp_path / "s"), rows(8)
    write_shard(path, "pkl.gz", a_plan(), layers, {})
    data = load_shard(path, 100_000)
    assert list(data) == [0, 2]
    assert np.array_equal(np.concatenate([e["activation"] for e in data[2]]), layers[2])


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], tuple(self.call[1:])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a command", Evil(__import__("os").system, "touch /tmp/gleaner-was-here")),
        ("eval", Evil(eval, "1")),
        ("an attribute of numpy", Evil(np.load, "x")),
        ("an array of objects", np.array([{}, 1], dtype=object)),
        ("an array of doubles", np.zeros(3)),
        ("bf16", np.zeros(3, ml_dtypes.bfloat16)),
        ("a class of ours", Sample(0, np.zeros(1, np.int32), "", False)),
        ("a set", {1, 2}.__class__),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_safe_reader_runs_nothing(tmp_path, name, value, protocol):
    with pytest.raises(Unsafe):
        load_shard(gzipped(tmp_path, pickle.dumps({0: [value]}, protocol)), 100_000)
    assert not __import__("os").path.exists("/tmp/gleaner-was-here")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04",
        b"junk",
        pickle.dumps({0: []})[:-1],
        b"\x80\x04P\x00.",
        b"\x80\x04\x96" + b"\xff" * 7 + b"\x7f.",
    ],
)
def test_the_safe_reader_refuses_what_is_damaged(tmp_path, data):
    with pytest.raises(Unsafe):
        load_shard(gzipped(tmp_path, data), 100_000)


def test_the_safe_reader_refuses_more_than_it_was_promised(tmp_path):
    bomb = pickle.dumps({0: "a" * 50_000_000}, 4)
    with pytest.raises(Unsafe, match="larger than its metadata says"):
        load_shard(gzipped(tmp_path, bomb), 100_000)
    with pytest.raises(Unsafe):
        load_shard(str(tmp_path / "absent"), 1)
