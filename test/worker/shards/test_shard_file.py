"""Shards as safetensors: read by the library, with an index, aligned, and the same bytes in every process."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from encoded_shards import DTYPES, FORMATS, STATS, a_plan, crc_of, encode, parse_tensors, plain, some_rows
from environment import HERE, WORKER
from gleaner_reader.run.formats import read_facts
from gleaner_worker.shards.encode import encode_tensors
from gleaner_worker.shards.shard_bytes import bytes_of


@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
def test_safetensors_shards_load_with_the_library(tmp_path, file_format, dtype):
    plan = a_plan()
    rows, scale = some_rows(plan, dtype=dtype, sites=("resid_pre", "mlp_out"))
    path = tmp_path / "s"
    path.write_bytes(plain(file_format, encode(file_format, plan, rows, scale).read()))
    loaded = safetensors.numpy.load_file(path)
    names = {f"{site}.{layer}" for site in rows for layer in (0, 2)}
    scales = {f"{name}.scale" for name in names} if dtype == "int8" else set()
    assert set(loaded) == names | scales | {"token_ids", "sample_offsets", "sample_idx"}
    for site, values in rows.items():
        for number, layer in enumerate((0, 2)):
            assert loaded[f"{site}.{layer}"].dtype == DTYPES[dtype]
            assert np.array_equal(loaded[f"{site}.{layer}"], values[number])
            if scale:
                assert np.array_equal(loaded[f"{site}.{layer}.scale"], scale[site][number])
    assert (loaded["token_ids"].dtype, loaded["token_ids"].tolist()) == (np.int32, [0, 1, 2, 1, 2, 3, 4, 5])
    assert (loaded["sample_offsets"].dtype, loaded["sample_offsets"].tolist()) == (np.int64, [0, 3, 4, 8])
    assert (loaded["sample_idx"].dtype, loaded["sample_idx"].tolist()) == (np.int64, [0, 2, 4])
    with safetensors.safe_open(path, "numpy") as file:
        facts = file.metadata()
        checksums = json.loads(facts["checksums"])
        assert {name: crc_of(bytes_of(np.ascontiguousarray(values))) for name, values in loaded.items()} == checksums
    assert (facts["a"], facts["b"], json.loads(facts["stats"])) == ("1", "2", STATS)


@pytest.mark.parametrize(
    ("name", "plan", "expected"),
    [
        ("all tokens", a_plan(), {}),
        ("some tokens", a_plan(positions=[[2, 0], [0], [1]]), {"row_offsets": [0, 2, 3, 4], "positions": [2, 0, 0, 1]}),
        ("the mean of all", a_plan(pooled=True), {"row_offsets": [0, 1, 2, 3]}),
        ("the mean of some", a_plan(positions=[[2, 0], [0], [1]], pooled=True), {"row_offsets": [0, 1, 2, 3]}),
        ("kept", a_plan(kept=['{"n":1}', "{}", '{"n":"\\ud800"}']), {"kept": list(b'{"n":1}\n{}\n{"n":"\\ud800"}\n')}),
        ("no samples", a_plan(()), {}),
    ],
)
def test_the_index_has_the_positions_of_rows_and_the_kept_fields(tmp_path, name, plan, expected):
    rows, _ = some_rows(plan)
    loaded = safetensors.numpy.load(encode("safetensors", plan, rows).read())
    index = {key: values.tolist() for key, values in loaded.items() if not key.startswith("resid_post")}
    tokens = [token for sample in plan.samples for token in sample.token_ids.tolist()]
    lengths = [len(sample.token_ids) for sample in plan.samples]
    assert index == expected | {
        "token_ids": tokens,
        "sample_offsets": np.cumsum([0, *lengths]).tolist(),
        "sample_idx": [sample.index for sample in plan.samples],
    }
    assert loaded["resid_post.0"].shape == (plan.rows, 6)
    if "positions" in expected:
        assert (loaded["positions"].dtype, loaded["row_offsets"].dtype) == (np.int32, np.int64)


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int8"])
@pytest.mark.parametrize("odd", range(8))
def test_every_tensor_is_aligned(dtype, odd):
    plan = a_plan(kept=["{}", '{"a":1}', "{}"])
    rows, scale = some_rows(plan, dtype=dtype)
    data = encode("safetensors", plan, rows, scale, identity={"odd": "x" * odd}).read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0
    itemsize = {"I64": 8, "I32": 4, "F32": 4, "BF16": 2, "I8": 1, "U8": 1}
    assert all(
        entry["data_offsets"][0] % itemsize[entry["dtype"]] == 0
        for name, entry in header.items()
        if name != "__metadata__"
    )


def test_an_encoded_shard_shares_the_memory_of_its_rows():
    plan = a_plan()
    rows, _ = some_rows(plan)
    shard = encode("safetensors", plan, rows)
    before = shard.read()
    rows["resid_post"][1, 7, 5] = 1234.5
    shard.seek(0)
    assert [a != b for a, b in zip(before, shard.read(), strict=True)].count(True) > 0
    assert np.float32(1234.5).tobytes() == shard._buffers[-1][-4:]


def test_an_array_that_would_need_a_copy_is_refused():
    with pytest.raises(ValueError, match="only a contiguous array"):
        encode_tensors({"a": np.zeros((4, 4), np.float32).T}, {})


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_metadata_of_a_shard_with_any_number_of_samples_is_read(file_format, count):
    plan = a_plan((5,) * count)
    rows, _ = some_rows(plan)
    data = encode(file_format, plan, rows).read()
    facts = read_facts(lambda begin, end: data[begin:end], len(data), file_format)
    assert facts["stats"] == STATS and ("tensors" in facts) == (file_format != "pkl.gz")


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_metadata_of_a_large_shard_is_read_from_few_bytes(file_format):
    plan = a_plan((2000,) * 4)
    rows, _ = some_rows(plan, d_model=128)
    data = encode(file_format, plan, rows).read()
    asked = []

    def read(begin, end):
        asked.append(end - begin)
        return data[begin:end]

    read_facts(read, len(data), file_format)
    assert sum(asked) <= 70_000 and len(asked) <= 3


@pytest.mark.parametrize("file_format", FORMATS)
def test_damaged_metadata_of_a_shard_is_refused(file_format):
    plan = a_plan()
    data = encode(file_format, plan, some_rows(plan)[0]).read()
    for part in (b"", data[:7], data[:20], b"\xff" * len(data)):
        with pytest.raises(ValueError):
            read_facts(lambda begin, end, part=part: part[begin:end], len(part), file_format)


def test_tensors_are_read_as_they_were_written():
    tensors = {
        "a": np.arange(6, dtype=np.int64).reshape(2, 3),
        "sums": np.random.default_rng(0).standard_normal((3, 2)),
        "rows": np.arange(8).astype(ml_dtypes.bfloat16).reshape(2, 4),
        "empty": np.empty((0, 5), np.int8),
    }
    data = encode_tensors(tensors, {"epoch": "3"})
    found, metadata = parse_tensors(data.read())
    assert metadata == {"epoch": "3"}
    assert {name: (values.dtype, values.shape) for name, values in found.items()} == {
        name: (values.dtype, values.shape) for name, values in tensors.items()
    }
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.long
@pytest.mark.parametrize("file_format", FORMATS)
def test_the_same_values_make_the_same_bytes_in_every_process_with_any_number_of_threads(tmp_path, file_format):
    script = f"""
import sys; sys.path[:0] = {[WORKER, HERE]!r}
from encoded_shards import a_plan, encode, some_rows
from gleaner_worker.shards import pickle_shard, zstd_seekable
pickle_shard._MEMBER_BYTES = zstd_seekable.FRAME_BYTES = 500
plan = a_plan((30, 40), kept=['{{"b":1,"a":2}}', "{{}}"])
identity = {{f"key{{i}}": str(i) for i in range(20)}}
shard = encode({file_format!r}, plan, some_rows(plan)[0], identity=identity, threads=int(sys.argv[1]))
sys.stdout.buffer.write(shard.read())
"""
    contents = {
        subprocess.run([sys.executable, "-c", script, threads], capture_output=True, check=True).stdout
        for threads in ("1", "2", "7")
    }
    assert len(contents) == 1 and len(contents.pop()) > 1000
