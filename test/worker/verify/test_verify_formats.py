"""Shards of every format and selection, verified as they are and with damage."""

import gzip
import json
import pickle
import re

import numpy as np
import pytest

from build import BUCKET, outputs, text_lines
from gleaner_reader.format.checksums import as_text, crc32c
from gleaner_reader.format.convert import Rows
from gleaner_worker.shards.row_statistics import ZEROS_EVERY, quantiles
from gleaner_worker.shards.shard_stats import share_of_zeros
from gleaner_worker.verify.statistics import LayerStatistics
from verified_run import LINES, PREFIX, rewrite

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_pickle_shard_with_wrong_samples_or_a_function_is_found(storage, extract, verify):
    spec = {"format": "pkl.gz", "dtype": "fp32"}
    extract(LINES, **spec)
    assert verify(**spec)[0]["ok"], verify()
    name = PREFIX + "shard_0001.pkl.gz"
    metadata = storage.metadata(BUCKET, name)
    data = pickle.loads(gzip.decompress(storage.data(BUCKET, name)))  # a pickle of this test

    def put(value):
        storage.put(BUCKET, name, gzip.compress(pickle.dumps(value, 4)), metadata)

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
    assert "holds 2 samples that differ from the stream" in verify()[1]
    put({0: print})
    assert "is not a pickle that can be trusted: it asks for builtins.print" in verify()[1]


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
            "tokens": "last:regex:[0-9]+",
            "mask": "regex:cost",
        },
        [
            (
                lambda t: put(t, "mlp_out.1.scale", 0, np.nan),
                "has scales of mlp_out.1 that are below zero or not finite",
            ),
            (lambda t: put(t, "mlp_out.1.scale", 0, -1), "has scales of mlp_out.1 that are below zero or not finite"),
            (lambda t: put(t, "mlp_out.1.scale", 0, 99), "has wrong statistics of mlp_out.1: max_abs"),
            (lambda t: t.pop("resid_pre.2.scale"), "lacks resid_pre.2.scale"),
            (lambda t: put(t, "kept", 5, ord("8")), "holds 1 samples that differ from the stream, the first at line 1"),
            (lambda t: t.pop("kept"), "lacks kept"),
            (lambda t: t.update(chunk_idx=t["span_idx"]), "has chunk_idx, which does not belong there"),
            (lambda t: put(t, "span_idx", 0, 1), "holds 1 samples that differ from the stream, the first at line 1"),
            (lambda t: t.pop("token_mask"), "lacks token_mask"),
            (lambda t: put(t, "token_mask", 0, 2), "its token_mask has other numbers than 0 and 1"),
            (lambda t: put(t, "token_mask", 0, 1), "holds 1 samples that differ from the stream, the first at line 1"),
        ],
    ),
    (
        {"dtype": "fp16", "tokens": [3, 0, -1], "exclude_special": True},
        [
            (lambda t: swap(t, "positions"), "holds 1 samples that differ from the stream, the first at line"),
            (lambda t: put(t, "positions", 0, 9999), "it has positions that its samples lack"),
            (lambda t: put(t, "row_offsets", 1, 4), "holds 2 samples that differ from the stream, the first at line"),
            (lambda t: put(t, "resid_post.1", (0, 0), np.inf), "has values in resid_post.1 that are not finite"),
            (lambda t: t.pop("row_offsets"), "lacks row_offsets"),
        ],
    ),
    (
        {"dtype": "fp32", "format": "safetensors.zst", "tokens": "mean"},
        [
            (lambda t: put(t, "token_ids", 0, 5), "holds 1 samples that differ from the stream, the first at line 1"),
            (lambda t: put(t, "resid_post.1", slice(None), 0), "has wrong statistics of resid_post.1: max_abs"),
            (lambda t: t.pop("row_offsets"), "lacks row_offsets"),
        ],
    ),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("spec", "changes"), KINDS, ids=lambda value: str(value.get("tokens", "all")) if isinstance(value, dict) else ""
)
def test_damage_in_every_kind_of_run_is_found(storage, extract, verify, finds, spec, changes):
    spec = spec | {"max_seq_length": 32}  # one batch shape
    lines = [json.dumps(json.loads(line) | {"n": 7}) for line in text_lines(12, 5)]
    extract(lines, **spec)
    report, problems = verify(**spec)
    assert report["ok"], problems
    assert report["rows"] == int(storage.metadata(BUCKET, PREFIX + shard_of(storage))["rows"])
    assert (report["rows"] < report["tokens"]) == ("tokens" in spec)
    name = shard_of(storage)
    data, metadata = storage.data(BUCKET, PREFIX + name), storage.metadata(BUCKET, PREFIX + name)
    for change, problem in changes:
        rewrite(storage, name, change, signed=True)
        _, problems = finds(problem)
        assert "holds other bytes" not in problems
        storage.put(BUCKET, PREFIX + name, data, metadata)


def test_a_pickle_whose_metadata_have_another_number_of_tokens_is_found(storage, extract, verify):
    spec = {"format": "pkl.gz", "dtype": "fp32"}
    extract(text_lines(12), **spec)
    name = PREFIX + "shard_0001.pkl.gz"
    data, metadata = storage.data(BUCKET, name), storage.metadata(BUCKET, name)
    storage.put(BUCKET, name, data, metadata | {"tokens": "7"})
    report, problems = verify(**spec)
    assert f"{name} says tokens 7, but its samples have {metadata['tokens']}" in problems
    assert (report["ok"], report["stored_once"]) == (False, 12)


def test_a_pickle_with_a_value_that_is_not_finite_holds_different_samples(storage, extract, verify):
    spec = {"format": "pkl.gz", "dtype": "fp32"}
    extract(text_lines(12), **spec)
    name = PREFIX + "shard_0001.pkl.gz"
    content = pickle.loads(gzip.decompress(storage.data(BUCKET, name)))  # a pickle of this test
    content[1][3]["activation"] = content[1][3]["activation"] * np.float32("nan")
    data = gzip.compress(pickle.dumps(content, 4))
    storage.put(BUCKET, name, data, storage.metadata(BUCKET, name) | {"crc32c": as_text(crc32c(data))})
    report, problems = verify(**spec)
    assert f"{name} has a wrong layer 1: sample 3 has values that are not finite" in problems
    assert (report["missing"], report["different"]) == (0, 12)


def int8_layer(seed):
    """Rows of int8 with their scales, and the statistics of the values before rounding."""
    chance = np.random.default_rng(seed)
    values = (chance.standard_t(2, (50, 32)) * chance.lognormal(0, 3, (50, 1))).astype(np.float32)
    values[:5] = 0
    scale = np.abs(values).max(axis=1) / np.float32(127)
    stored = np.round(values / np.maximum(scale, 1e-30)[:, None]).astype(np.int8)
    rounded = stored * scale[:, None]
    squares = float(np.square(values, dtype=np.float64).sum())
    norms = np.linalg.norm(rounded.astype(np.float64), axis=1)
    stats = {
        "mean": float(rounded.mean(dtype=np.float64)),
        "norm": float(norms.mean()),
        "max_abs": float(np.abs(rounded).max()),
        "mean_square": squares / values.size,
        "int8_error": (float(np.square(values - rounded, dtype=np.float64).sum()) / squares) ** 0.5,
        "non_finite": 0,
        "zeros": share_of_zeros(rounded[::ZEROS_EVERY]),
        "norm_quantiles": quantiles(norms),
        "max_abs_by_position": [],
    }
    return Rows(stored, scale), stats


@pytest.mark.parametrize("seed", range(20))
def test_the_statistics_of_int8_values_agree_with_their_stored_values(seed):
    rows, stats = int8_layer(seed)
    actual = LayerStatistics()
    actual.add(rows)
    assert actual.contradiction(stats, True, None) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda stats: {"mean_square": stats["mean_square"] * 2}, "mean_square .*, not about "),
        (lambda stats: {"mean_square": stats["mean_square"] / 2}, "mean_square .*, not about "),
        (lambda stats: {"mean_square": -stats["mean_square"]}, "mean_square -.*, not about "),
        (lambda stats: {"mean_square": float("nan")}, "mean_square nan"),
        (lambda stats: {"int8_error": 0.5}, "int8_error 0.5, which contradicts"),
        (lambda stats: {"int8_error": -stats["int8_error"]}, "int8_error -.*, which contradicts"),
    ],
)
def test_wrong_statistics_of_the_values_before_rounding_to_int8_are_found(change, problem):
    rows, stats = int8_layer(1)
    actual = LayerStatistics()
    actual.add(rows)
    assert re.match(problem, actual.contradiction(stats | change(stats), True, None) or "none")


def shard_of(storage):
    return next(name for name in outputs(storage) if name.startswith("shard_"))


@pytest.mark.long
def test_a_pickle_of_a_selection_is_verified(storage, extract, verify, finds):
    spec = {"format": "pkl.gz", "dtype": "fp16", "tokens": "1:9:2", "keep": ["n"], "layers": [0, 2]}
    spec["max_seq_length"] = 32
    lines = [json.dumps(json.loads(line) | {"n": number}) for number, line in enumerate(text_lines(12, 5))]
    extract(lines, **spec)
    report, problems = verify(**spec)
    assert report["ok"], problems
    name = PREFIX + "shard_0001.pkl.gz"
    metadata, data = storage.metadata(BUCKET, name), storage.data(BUCKET, name)
    for change, problem in (
        (lambda entry: entry["kept"].update(n=99), "has different samples in layer 2 than in layer 0"),
        (lambda entry: entry["positions"].reverse(), "has different samples in layer 2 than in layer 0"),
        (lambda entry: entry.pop("positions"), "sample 0 lacks positions"),
        (lambda entry: entry.update(activation=np.float32(entry["activation"])), "sample 0 is float32 "),
        (lambda entry: entry.update(shape=(1, 32)), "and says [1, 32]"),
    ):
        content = pickle.loads(gzip.decompress(data))  # a pickle of this test
        change(content[2][0])
        storage.put(BUCKET, name, gzip.compress(pickle.dumps(content, 4)), metadata)
        finds(problem)
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
