"""Runs of reductions: features, projections and moments that were computed on the device."""

import json

import numpy as np
import pytest

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.export import to_npy
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.verify import verify
from hostile_files import a_file, a_header, a_tensor
from stored_reductions import D_MODEL, LAYERS, OUTPUTS, store_reductions
from stored_run import store_run, summarise


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_reductions(tmp_path_factory.mktemp("reductions"))


@pytest.fixture
def run(stored):
    return gleaner_reader.open(stored.folder)


def test_the_outputs_of_a_run_are_read_as_any_site(stored, run):
    assert set(run.sites) == {"scope", "scope_ids", "scope_active", "probe"} and run.layers == LAYERS
    assert run.outputs == OUTPUTS
    for name in run.sites:
        assert np.array_equal(run.layer(2, name)[:].astype(np.float32), stored.of(stored.values[name], 2))


@pytest.mark.parametrize("tokens", ["all", slice(1, 9, 2)])
@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst"])
def test_a_run_of_moments_alone_opens_and_verifies_and_says_that_it_has_no_rows(tmp_path, file_format, tokens):
    stored = store_reductions(tmp_path / "run", ("moments",), file_format, tokens=tokens)
    digest = summarise(stored.folder)
    run = gleaner_reader.open(stored.folder)
    assert (run.sites, run.layers, run.widths, run.dtypes) == ((), (), {}, {})
    assert run.num_samples == sum(len(plan.samples) for _, plan in stored.plans)
    assert run.num_rows == sum(plan.rows for _, plan in stored.plans)
    assert run.num_rows == sum(int(run.shard_index(n).row_offsets[-1]) for n in range(6))
    assert run.first.moments == {("resid_post", layer): D_MODEL for layer in LAYERS}
    assert "6 shards of 2 streams" in repr(run)
    assert run.sample(7, 41).activations == {} and run.sample(7, 41).kept == {"n": 41, "text": "é"}
    says = "stores moments and no rows of a site; run.moments"
    for ask in (
        lambda: run.d_model,
        lambda: run.dtype,
        lambda: run.layer(0),
        lambda: run.batches(0),
        lambda: to_npy(run, str(tmp_path / "npy"), 0),
    ):
        with pytest.raises(ValueError, match=says):
            ask()
    found = verify(open_folder(stored.folder))
    assert found.problems == () and found.digest == digest
    last = run.streams[7][-1].url  # of another attempt than metadata.json, so its own checksums count
    data = bytearray(open(last, "rb").read())
    if file_format == "safetensors":
        data[run.streams[7][-1].tensors["resid_post.2.squares"].begin] ^= 1
        open(last, "wb").write(data)
        assert any("shard_0003" in problem for problem in verify(open_folder(stored.folder)).problems)


def test_other_runs_have_no_outputs_and_no_moments(tmp_path):
    run = gleaner_reader.open(store_run(tmp_path).folder)
    assert run.outputs == {} and run.first.moments == {}


SUM, SQUARES = a_tensor(shape=(1, 1), offsets=(0, 4)), a_tensor(shape=(1, 1), offsets=(4, 8))


@pytest.mark.parametrize(
    "tensors",
    [
        {"resid_post.0.sum": SUM},
        {"resid_post.0.squares": SUM},
        {"resid_post.0.sum": SUM, "resid_post.1.squares": SQUARES},
        {"resid_post.0.sum": SUM, "resid_post.0.squares": SQUARES | {"shape": [1]}},
        {"resid_post.0.sum": SUM | {"dtype": "I32"}, "resid_post.0.squares": SQUARES | {"dtype": "I32"}},
        {"resid_post.0.sum": SUM | {"shape": [1, 1, 1]}, "resid_post.0.squares": SQUARES | {"shape": [1, 1, 1]}},
    ],
)
def test_moments_of_other_shapes_are_refused(tmp_path, tensors):
    """Every shard here has one sample."""
    end = max(each["data_offsets"][1] for each in tensors.values())
    header = tensors | {"sample_idx": a_tensor("I64", (1,), (end, end + 8))}
    shard = gleaner_reader.open(a_file(tmp_path, a_header(header, bytes(end + 8))))
    with pytest.raises(ShardError, match=r"its moments of resid_post\.\d are not F32 \[samples, width\]"):
        _ = shard.sites


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("[1]", "the outputs in its header are damaged"),
        ("[" * 100_000, "the outputs in its header are damaged"),
        ('{"a": 1}', "the kind of its output a is None"),
        ('{"a": {"kind": ["features"]}}', r"the kind of its output a is \['features'\]"),
        ('{"a": {"kind": "project", "site": "q", "k": true}}', "the k of its output a is True"),
        ('{"a": {"kind": "project", "site": "q", "k": 16777217}}', "the k of its output a is 16777217"),
        ('{"a": {"kind": "features", "site": "q", "k": 1}}', "the d_sae of its output a is None"),
        (json.dumps({"\x1b[2J": {"kind": "project"}}), r"the site of its output \\x1b\[2J is None"),
    ],
)
def test_a_damaged_description_of_the_outputs_is_refused(tmp_path, outputs, says):
    header = {"__metadata__": {"outputs": outputs}, "resid_post.0": a_tensor()}
    with pytest.raises(ShardError, match=says):
        _ = gleaner_reader.open(a_file(tmp_path, a_header(header, bytes(4)))).outputs
