"""Random shards, read again as they were stored."""

import json
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gleaner_reader
from gleaner_worker.shards.plan import ShardPlan
from stored_run import a_sample, encode, some_rows

pytestmark = pytest.mark.slow

samples = st.lists(
    st.tuples(
        st.integers(1, 3),  # the distance to the sample before; those between are rejected
        st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=12),
        st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=9) | st.floats(allow_nan=False), max_size=2),
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(
    drawn=samples,
    selection=st.sampled_from(["all", "mean", "last", "every second"]),
    dtype=st.sampled_from(["bf16", "fp16", "fp32", "int8"]),
    file_format=st.sampled_from(["safetensors", "safetensors.zst", "pkl.gz"]),
    d_model=st.integers(1, 9),
    sites=st.sampled_from([("resid_post",), ("resid_pre", "attn_out")]),
    keeps=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shard_is_read_as_it_was_stored(drawn, selection, dtype, file_format, d_model, sites, keeps, seed):
    if file_format == "pkl.gz":
        dtype, sites = {"bf16": "fp32", "int8": "fp16"}.get(dtype, dtype), sites[:1]
    made, index = [], -1
    for gap, ids, kept in drawn:
        index += gap
        positions = {"last": [len(ids) - 1], "every second": range(0, len(ids), 2)}.get(selection)
        sample = a_sample(index, len(ids), positions, json.dumps(kept) if keeps else "")
        sample.token_ids[:] = ids
        made.append(sample)
    plan = ShardPlan(1, 0, index + 1, tuple(made), True, selection == "mean")
    rows, scale, values = some_rows(plan, sites, (0, 3), d_model, dtype, seed)
    data = encode(plan, rows, scale, (0, 3), file_format, threads=1 + seed % 3)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/shard_0001.{file_format}"
        with open(path, "wb") as file:
            file.write(data.read())
        shard = gleaner_reader.open(path)
        found = shard.index()
        assert (shard.num_samples, shard.num_rows, shard.num_tokens) == (len(made), plan.rows, plan.tokens)
        assert (shard.sites, shard.layers, shard.d_model, shard.dtype) == (sites, (0, 3), d_model, dtype)
        for name, expected in values.items():
            site, _, layer = name.partition(".")
            array = shard.read(int(layer), site, dtype="float32", verify=True)
            assert np.array_equal(array, expected)
    assert found.sample_idx.tolist() == [sample.index for sample in made]
    assert found.row_offsets.tolist() == plan.row_offsets.tolist()
    if file_format != "pkl.gz":
        assert found.token_ids.tolist() == [token for sample in made for token in sample.token_ids.tolist()]
    else:
        assert found.previews == [sample.preview for sample in made]
    if keeps and made:
        assert found.kept == [json.loads(sample.kept) for sample in made]
    if selection == "mean":
        assert found.positions is None or file_format == "pkl.gz"
    else:
        chosen = [range(len(s.token_ids)) if s.positions is None else s.positions.tolist() for s in made]
        assert found.positions.tolist() == [position for positions in chosen for position in positions]
