"""Pickle shards: those of other software, damaged ones, and those that state false counts."""

import gzip
import os
import pickle
import struct
import warnings

import numpy as np
import pytest

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.gzip_header import gzip_header
from hostile_files import MIB, a_file, at_most, read_everything
from stored_run import a_plan, encode

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pickles_of_other_software_are_read_too(tmp_path, protocol, dtype):
    random = np.random.default_rng(0)
    entries = [(index, random.standard_normal((index + 1, 6)).astype(dtype)) for index in (0, 2, 5)]
    data = {
        layer: [
            {"sample_idx": index, "activation": values + layer, "shape": values.shape, "text_preview": "é" * index}
            for index, values in entries
        ]
        for layer in (0, 3)
    }
    os.makedirs(tmp_path / "tpu_4")
    a_file(tmp_path / "tpu_4", gzip.compress(pickle.dumps(data, protocol)), "shard_0001.pkl.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = gleaner_reader.open(tmp_path)
    assert (run.sites, run.layers, run.d_model, run.num_rows, run.num_samples) == (("resid_post",), (0, 3), 6, 10, 3)
    assert run.dtype == {"float32": "fp32", "float16": "fp16"}[np.dtype(dtype).name]
    assert np.array_equal(run.layer(3)[:], np.concatenate([values + 3 for _, values in entries]))
    assert np.array_equal(run.sample(4, 5).activations["resid_post.3"], entries[2][1] + 3)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a list", [1]),
        ("text for a layer", {"0": []}),
        ("a dict for a list", {0: {}}),
        ("an entry that is a list", {0: [[]]}),
        ("a field too many", {0: [{"sample_idx": 0, "activation": 0, "shape": (1,), "text_preview": "", "x": 1}]}),
        ("no activation", {0: [{"sample_idx": 0, "shape": (1,), "text_preview": ""}]}),
        ("a negative sample", {0: [{"sample_idx": -1, "activation": 0, "shape": (1,), "text_preview": ""}]}),
        ("true for a sample", {0: [{"sample_idx": True, "activation": 0, "shape": (1,), "text_preview": ""}]}),
        ("an activation that is text", {0: [{"sample_idx": 0, "activation": "x", "shape": (1,), "text_preview": ""}]}),
        (
            "another width in one sample",
            {
                0: [
                    {
                        "sample_idx": i,
                        "activation": np.zeros((1, 2 + i), np.float32),
                        "shape": (1, 2 + i),
                        "text_preview": "",
                    }
                    for i in (0, 1)
                ]
            },
        ),
    ],
)
def test_a_pickle_of_other_values_is_refused(tmp_path, name, data):
    path = a_file(tmp_path, gzip.compress(pickle.dumps(data)), "shard_0001.pkl.gz")
    with pytest.raises(ShardError, match=f"^{path} "):
        read_everything(path)


def test_an_array_that_two_layers_share_belongs_to_the_first(tmp_path):
    entry = {"sample_idx": 4, "activation": np.ones((2, 3), np.float32), "shape": (2, 3), "text_preview": ""}
    path = a_file(tmp_path, gzip.compress(pickle.dumps({0: [entry], 1: [entry]})), "shard_0001.pkl.gz")
    shard = gleaner_reader.open(path)
    assert np.array_equal(shard.read(0), entry["activation"])
    with pytest.raises(ShardError, match="a sample of layer 1 has not"):
        shard.read(1)


def entries_of(arrays):
    return [
        {"sample_idx": index, "activation": array, "shape": array.shape, "text_preview": ""}
        for index, array in enumerate(arrays)
    ]


@pytest.mark.parametrize(
    ("name", "arrays", "facts", "says"),
    [
        ("rows without values", [np.empty((1 << 60, 0), np.float32)] * 16, {}, "it has an array of shape .*, 0"),
        ("one array as every sample", [np.zeros((1 << 16, 1), np.float32)] * 2_000, {}, "more values than it can hold"),
        (
            "one array as every sample, and a header that says one",
            [np.zeros((1 << 16, 1), np.float32)] * 2_000,
            {"rows": "65536", "d_model": "1"},
            "is damaged: layer 0 is .131072000, 1.",
        ),
        ("a header of rows without values", [], {"rows": "9" * 18, "d_model": "0"}, "which it cannot hold"),
        ("a header of more than its bytes can hold", [], {"rows": "9" * 18, "d_model": "1"}, "which it cannot hold"),
        (
            "a layer of 5,000 digits",
            [],
            {"rows": "0", "d_model": "1", "stats": '{"resid_post.%s": {}}' % ("9" * 5000)},
            "the stats in its header name no layers",
        ),
    ],
)
def test_a_pickle_with_false_counts_is_refused_in_little_memory(tmp_path, name, arrays, facts, says):
    body = gzip.compress(pickle.dumps({0: entries_of(arrays)}))
    if facts:
        body = gzip_header({"stats": '{"resid_post.0": {}}'} | facts) + body[10:]
    path = a_file(tmp_path, body, "shard_0001.pkl.gz")
    with at_most(100 * MIB), pytest.raises(ShardError, match=f"^{path} .*{says}"):
        gleaner_reader.open(path).read(0)


def test_a_shard_of_equal_rows_is_read_whatever_its_compression(tmp_path):
    plan = a_plan(count=300)
    rows = {"resid_post": np.ones((2, plan.rows, 8192), np.float32)}
    path = a_file(tmp_path, encode(plan, rows, {}, (0, 1), "pkl.gz").read(), "shard_0001.pkl.gz")
    assert rows["resid_post"].nbytes > 20 * os.path.getsize(path) + (1 << 26)
    shard = gleaner_reader.open(path)
    assert np.array_equal(shard.read(1), rows["resid_post"][1])
    assert shard.index().row_offsets[-1] == plan.rows


def test_a_header_limits_the_bytes_that_are_read(tmp_path):
    facts = {"rows": "1", "d_model": "1", "samples": "1", "dtype": "float32", "stats": '{"resid_post.0": {}}'}
    bomb = gzip.compress(pickle.dumps({0: b"\x00" * (1 << 27)}, 4))
    path = a_file(tmp_path, gzip_header(facts) + bomb[10:], "shard_0001.pkl.gz")
    with at_most(50 * MIB), pytest.raises(ShardError, match="it is larger than its metadata says"):
        gleaner_reader.open(path).read(0)
    facts |= {"rows": str(1 << 26)}
    short = gzip.compress(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 27) + os.urandom(1 << 17))
    path = a_file(tmp_path, gzip_header(facts) + short[10:], "shard_0001.pkl.gz")
    with at_most(50 * MIB), pytest.raises(ShardError, match="it ends too early"):
        gleaner_reader.open(path).read(0)
