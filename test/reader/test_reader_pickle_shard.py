"""Pickle shards: those of other software, damaged ones, and those that state false counts."""

import gzip
import json
import os
import pickle
import struct
import tracemalloc
import warnings

import numpy as np
import numpy.ma  # noqa: F401  # numpy imports it late, and a test counts memory
import pytest

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.format.gzip_header import gzip_header
from gleaner_reader.run import pickle_shard
from gleaner_worker.shards.plan import ShardPlan
from hostile_files import a_file, read_everything
from memory import MIB, at_most
from stored_run import a_plan, a_sample, encode, store_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pickles_of_other_software_are_read(tmp_path, protocol, dtype):
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
def test_a_pickle_with_another_structure_is_refused(tmp_path, name, data):
    path = a_file(tmp_path, gzip.compress(pickle.dumps(data)), "shard_0001.pkl.gz")
    with pytest.raises(ShardError, match=f"^{path} "):
        read_everything(path)


def a_tower(kind):
    """A value whose pickle is small: it shares each part, and has 2^60 parts when it is written out."""
    value = kind()
    for _ in range(60):
        value = kind((value, value))
    return value


def a_list_of_itself():
    values = []
    values += [values] * 1000
    return values


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


WRONG_FIELDS = {
    "a shape of shared tuples": ({"shape": a_tower(tuple)}, "shape that is not a tuple of small numbers"),
    "a list as shape": ({"shape": [1, 2]}, "shape that is not"),
    "a negative shape": ({"shape": (-1, 2)}, "shape that is not"),
    "true in a shape": ({"shape": (True, 2)}, "shape that is not"),
    "a huge size": ({"shape": (1 << 31, 2)}, "shape that is not"),
    "many sizes": ({"shape": (1,) * 9}, "shape that is not"),
    "a preview that is a number": ({"text_preview": 1}, "text_preview that is not text"),
    "kept fields of shared lists": ({"kept": {"a": a_tower(list)}}, "it repeats a list"),
    "kept fields that hold themselves": ({"kept": {"a": a_list_of_itself()}}, "it repeats a list"),
    "kept fields with a tuple": ({"kept": {"a": a_tower(tuple)}}, "kept fields that"),
    "kept fields with bytes": ({"kept": {"a": [b"x"]}}, "kept fields that"),
    "kept fields with an array": ({"kept": {"a": np.zeros(1, np.float32)}}, "kept fields that"),
    "a number as the key of a kept field": ({"kept": {"a": {1: 2}}}, "kept fields that"),
    "kept fields in a list": ({"kept": [1]}, "kept fields that"),
    "too many kept values": ({"kept": {"a": [1] * (1 << 15)}}, "kept fields that"),
}


@pytest.mark.parametrize(("change", "says"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_sample_with_a_wrong_or_exponential_field_is_refused(tmp_path, change, says):
    entry = {"sample_idx": 0, "activation": np.zeros((1, 2), np.float32), "shape": (1, 2), "text_preview": ""}
    path = a_file(tmp_path, gzip.compress(pickle.dumps({0: [entry | change]})), "shard_0001.pkl.gz")
    with at_most(32 * MIB), pytest.raises(ShardError, match=f"^{path} is not a .*{says}"):
        read_everything(path)


def test_kept_fields_too_deep_for_a_comparison_are_refused(tmp_path):
    entry = {"sample_idx": 0, "activation": np.zeros((1, 2), np.float32), "shape": (1, 2), "text_preview": ""}
    data = pickle.dumps({0: [entry | {"kept": {"a": "DEEP"}}]}, 3)  # pickle.dumps itself refuses such a depth
    deep = data.replace(b"X\x04\x00\x00\x00DEEP", b"]" * 600 + b"a" * 599)
    path = a_file(tmp_path, gzip.compress(deep), "shard_0001.pkl.gz")
    with pytest.raises(ShardError, match="sample 0 has kept fields that"):
        read_everything(path)


@pytest.mark.parametrize(
    "kept",
    [{"a": [1] * 32_764}, {"a": nested(400)}, {"a": None, "b": [True, 1.5, "x", {"c": {}}]}],
    ids=["as many values as 64 KiB of JSON can have", "a great depth", "every type"],
)
def test_the_kept_fields_that_a_worker_stores_are_read(tmp_path, kept):
    entry = {"sample_idx": 0, "activation": np.zeros((1, 2), np.float32), "shape": (1, 2), "text_preview": ""}
    path = a_file(tmp_path, gzip.compress(pickle.dumps({0: [entry | {"kept": kept}]})), "shard_0001.pkl.gz")
    assert gleaner_reader.open(path).index().kept == [kept]


def entries_of(arrays):
    return [
        {"sample_idx": index, "activation": array, "shape": array.shape, "text_preview": ""}
        for index, array in enumerate(arrays)
    ]


@pytest.mark.parametrize(
    ("name", "arrays", "facts", "says"),
    [
        ("rows without values", [np.empty((1 << 60, 0), np.float32)] * 16, {}, "it has an array of shape .*, 0"),
        ("one array as every sample", [np.zeros((1 << 16, 1), np.float32)] * 2_000, {}, "it repeats a list, a dict or"),
        ("more rows than an index holds", [np.zeros(((1 << 22) + 1, 1), np.float16)], {}, "more than 4194304 rows"),
        ("a header of rows without values", [], {"rows": "9" * 18, "d_model": "0"}, "which the file cannot hold"),
        ("a header of more than its bytes can hold", [], {"rows": "9" * 18, "d_model": "1"}, "the file cannot hold"),
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


def test_a_shard_of_zeros_is_read(tmp_path):
    plan = a_plan(count=100)
    rows = {"resid_post": np.zeros((2, plan.rows, 8192), np.float32)}
    path = a_file(tmp_path, encode(plan, rows, {}, (0, 1), "pkl.gz").read(), "shard_0001.pkl.gz")
    assert rows["resid_post"].nbytes > 200 * os.path.getsize(path)
    shard = gleaner_reader.open(path)
    assert np.array_equal(shard.read(1), rows["resid_post"][1])
    assert shard.index().row_offsets[-1] == plan.rows


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        ({}, 3_450),
        ({"text": "é" * 10_000}, 25),
        ({"a": "x" * 65_000}, 5),
        ({"n": 10**4000}, 25),
        ({"grids": [[[0] * 30] * 30] * 7}, 38),
        ({"labels": [-100] * 8192}, 8),
    ],
    ids=["none", "text that is not ASCII", "64 KiB", "a large number", "numbers", "labels"],
)
def test_a_shard_of_equal_samples_is_read(tmp_path, monkeypatch, kept, count):
    monkeypatch.setattr(pickle_shard, "FREE_BYTES", 4 * MIB)
    text = json.dumps(kept) if kept else ""
    plan = ShardPlan(1, 0, count - 1, tuple(a_sample(index, 4, [0], text) for index in range(count)), True)
    equal = np.random.default_rng(0).standard_normal(1024).astype(np.float16)
    rows = {"resid_post": np.tile(equal, (1, count, 1))}
    path = a_file(tmp_path, encode(plan, rows, {}, (0,), "pkl.gz").read(), "shard_0001.pkl.gz")
    shard = gleaner_reader.open(path)
    assert shard.index().kept == ([kept] * count if kept else None)


@pytest.mark.parametrize("verify", [False, True])
def test_reading_rows_of_a_run_leaves_no_layer_of_a_pickle_in_memory(tmp_path, verify):
    stored = store_run(tmp_path, "pkl.gz", "fp32", d_model=256, layers=(0,), streams=(7,), shards=4)
    run = gleaner_reader.open(tmp_path)
    first_rows = run.row_offsets[:-1]
    tracemalloc.start()
    try:
        rows = run.layer(0, verify=verify)[first_rows]
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert np.array_equal(rows, stored.rows("resid_post.0")[first_rows])
    assert held_bytes < MIB < stored.rows("resid_post.0").nbytes


FLOODS = {
    "lists that are numbered": b"]\x94" * 500_000,
    "a text": b"X" + struct.pack("<I", 1 << 26) + b"a" * (1 << 26),
    "texts": (b"X" + struct.pack("<I", 60_000) + b"a" * 60_000) * 1_000,
    "bytes": b"B" + struct.pack("<I", 1 << 26) + bytes(1 << 26),
}


@pytest.mark.sample(2)  # many lists, and many texts
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_counts_in_a_header_lift_no_limit(tmp_path, monkeypatch, flood):
    monkeypatch.setattr(pickle_shard, "FREE_BYTES", MIB)
    pad = os.urandom(8_000)  # a larger file may have more values
    body = gzip.compress(b"\x80\x04C\x00B" + struct.pack("<I", len(pad)) + pad + flood + b".", 6)
    for rows, samples in (("1", str(10**17)), ("1000000", "1000000")):
        facts = {"rows": rows, "d_model": "1", "samples": samples, "dtype": "float32", "stats": '{"resid_post.0": {}}'}
        path = a_file(tmp_path, gzip_header(facts) + body[10:], "shard_0001.pkl.gz")
        assert os.path.getsize(path) < 150_000
        with at_most(40 * MIB), pytest.raises(ShardError, match=f"^{path} is not a pickle that can be trusted: "):
            gleaner_reader.open(path).read(0)


def test_an_array_that_ends_too_early_takes_little_memory(tmp_path):
    short = gzip.compress(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 24) + os.urandom(1 << 17))
    path = a_file(tmp_path, short, "shard_0001.pkl.gz")
    with at_most(50 * MIB), pytest.raises(ShardError, match="it ends too early"):
        gleaner_reader.open(path).read(0)
