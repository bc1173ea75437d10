"""Shards as the seeds' pickle, read with gzip, pickle and numpy alone."""

import gzip
import pickle
import subprocess
import sys
import zlib

import numpy as np
import pytest

from encoded_shards import DTYPES, a_plan, encode, some_rows
from gleaner_worker.shards import pickle_shard

# The snippet of the format's guide, with numpy alone.
SNIPPET = """
import pickle, gzip, sys
for name in ('ml_dtypes', 'gleaner_reader', 'gleaner_worker'):
    sys.modules[name] = None
with gzip.open(sys.argv[1], 'rb') as f:
    data = pickle.load(f)
def facts(e):
    values = e['activation']
    rest = {key: value for key, value in e.items() if key not in ('sample_idx', 'activation', 'shape', 'text_preview')}
    return e['sample_idx'], values.shape, str(values.dtype), e['shape'], e['text_preview'], float(values.sum()), rest
print({layer: [facts(e) for e in entries] for layer, entries in data.items()})
"""


@pytest.mark.parametrize(
    ("member_bytes", "dtype", "plan", "rest"),
    [
        (1 << 22, "fp32", a_plan(), [{}, {}, {}]),
        (100, "fp16", a_plan(), [{}, {}, {}]),
        (1 << 22, "fp32", a_plan(pooled=True), [{}, {}, {}]),
        (
            100,
            "fp32",
            a_plan(positions=[[2, 0], [0], [1]], kept=['{"n":1}', "{}", '{"n":"x"}']),
            [
                {"positions": [2, 0], "kept": {"n": 1}},
                {"positions": [0], "kept": {}},
                {"positions": [1], "kept": {"n": "x"}},
            ],
        ),
    ],
)
def test_pickle_shards_load_with_the_snippet_of_the_seeds_and_numpy_alone(
    tmp_path, monkeypatch, member_bytes, dtype, plan, rest
):
    monkeypatch.setattr(pickle_shard, "_MEMBER_BYTES", member_bytes)
    rows, _ = some_rows(plan, dtype=dtype)
    path = tmp_path / "shard_0001.pkl.gz"
    path.write_bytes(encode("pkl.gz", plan, rows).read())
    out = subprocess.run([sys.executable, "-c", SNIPPET, path], capture_output=True, text=True, check=True).stdout
    expected = {}
    for number, layer in enumerate((0, 2)):
        expected[layer] = []
        for place, sample in enumerate(plan.samples):
            values = rows["resid_post"][number][plan.row_offsets[place] : plan.row_offsets[place + 1]]
            facts = (sample.index, values.shape, np.dtype(DTYPES[dtype]).name, values.shape, sample.preview)
            expected[layer].append((*facts, float(values.sum()), rest[place]))
    assert eval(out) == expected  # a literal of our own output


def test_each_gzip_member_is_a_complete_file_without_a_timestamp(monkeypatch):
    monkeypatch.setattr(pickle_shard, "_MEMBER_BYTES", 4096)
    plan = a_plan((40, 60))
    rows, _ = some_rows(plan, d_model=64)
    data = encode("pkl.gz", plan, rows).read()
    whole, parts = gzip.decompress(data), []
    while data:
        assert data[:4] in (b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08\x04") and data[4:8] == bytes(4)
        unpacker = zlib.decompressobj(31)
        parts.append(unpacker.decompress(data))
        assert unpacker.eof
        data = unpacker.unused_data
    assert b"".join(parts) == whole
    assert {len(part) for part in parts[:-1]} == {4096} and len(parts) > 10
    assert list(pickle.loads(whole)) == [0, 2]


def test_equal_values_make_the_same_pickle_with_and_without_shared_objects():
    one, other = a_plan((2, 2)), a_plan((2, 2))
    for plan, previews in ((one, ["same text"] * 2), (other, ["same text", "".join(["same", " text"])])):
        for sample, preview in zip(plan.samples, previews, strict=True):
            object.__setattr__(sample, "preview", preview)
    rows, _ = some_rows(one)
    assert encode("pkl.gz", one, rows).read() == encode("pkl.gz", other, rows).read()
