"""One shard as one file: every format loads with what people have, and the same values make the same bytes."""

import base64
import gzip
import io
import json
import pickle
import shutil
import subprocess
import sys
import zlib

import google_crc32c
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import zstandard

from environment import HERE, WORKER
from gleaner_reader.header import parse_tensors, read_metadata
from gleaner_worker.records.samples import Sample
from gleaner_worker.shards import pickle_shard, zstd_seekable
from gleaner_worker.shards.encode import encode_shard, encode_tensors
from gleaner_worker.shards.plan import ShardPlan
from gleaner_worker.shards.shard_bytes import ShardBytes, bytes_of

FORMATS = ["safetensors", "safetensors.zst", "pkl.gz"]
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "int8": np.int8}
STATS = {"resid_post.0": {"mean": 0.5, "norm": 2.0, "max_abs": 3.0, "non_finite": 0}}


def a_plan(lengths=(3, 1, 4), positions=None, kept=None, pooled=False):
    samples = tuple(
        Sample(
            i * 2,
            np.arange(n, dtype=np.int32) + i,
            None if positions is None else np.array(positions[i], np.int32),
            f"text {i}",
            False,
            "" if kept is None else kept[i],
        )
        for i, n in enumerate(lengths)
    )
    return ShardPlan(1, 0, 2 * len(lengths), samples, True, pooled)


def some_rows(plan, layers=(0, 2), dtype="fp32", sites=("resid_post",), d_model=6):
    random = np.random.default_rng(0)
    shape = (len(layers), plan.rows, d_model)
    if dtype == "int8":
        rows = {site: random.integers(-127, 128, shape).astype(np.int8) for site in sites}
        return rows, {site: random.random(shape[:2]).astype(np.float32) for site in sites}
    return {site: random.standard_normal(shape).astype(DTYPES[dtype]) for site in sites}, {}


def encode(file_format, plan, rows, scale=None, layers=(0, 2), identity=None, threads=2):
    return encode_shard(file_format, plan, layers, rows, scale or {}, identity or {"a": "1", "b": "2"}, STATS, threads)


def plain(file_format, data):
    """The safetensors file in it, by zstandard's own reader."""
    if file_format == "safetensors":
        return data
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


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


def crc_of(data):
    return base64.b64encode(google_crc32c.Checksum(bytes(data)).digest()).decode()


@pytest.mark.parametrize(
    ("name", "plan", "expected"),
    [
        ("all tokens", a_plan(), {}),
        (
            "some tokens",
            a_plan(positions=[[2, 0], [0], [1]]),
            {"row_offsets": [0, 2, 3, 4], "positions": [2, 0, 0, 1]},
        ),
        ("the mean of all", a_plan(pooled=True), {"row_offsets": [0, 1, 2, 3]}),
        ("the mean of some", a_plan(positions=[[2, 0], [0], [1]], pooled=True), {"row_offsets": [0, 1, 2, 3]}),
        ("kept", a_plan(kept=['{"n":1}', "{}", '{"n":"\\ud800"}']), {"kept": list(b'{"n":1}\n{}\n{"n":"\\ud800"}\n')}),
        ("no samples", a_plan(()), {}),
    ],
)
def test_the_index_says_which_tokens_have_rows_and_what_was_kept(tmp_path, name, plan, expected):
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


def test_the_rows_are_not_copied():
    plan = a_plan()
    rows, _ = some_rows(plan)
    shard = encode("safetensors", plan, rows)
    before = shard.read()
    rows["resid_post"][1, 7, 5] = 1234.5
    shard.seek(0)
    assert [a != b for a, b in zip(before, shard.read(), strict=True)].count(True) > 0
    assert np.float32(1234.5).tobytes() == shard._buffers[-1][-4:]


def test_a_layout_that_would_need_a_copy_is_refused():
    with pytest.raises(ValueError, match="only a contiguous array"):
        encode_tensors({"a": np.zeros((4, 4), np.float32).T}, {})


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_shards_of_any_number_of_samples_tell_their_facts_by_a_small_read(file_format, count):
    plan = a_plan((5,) * count)
    rows, _ = some_rows(plan)
    data = encode(file_format, plan, rows).read()
    facts = read_metadata(lambda begin, end: data[begin:end], len(data), file_format)
    assert (facts["a"], facts["b"], json.loads(facts["stats"])) == ("1", "2", STATS)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_resumed_worker_reads_little_of_a_large_shard_to_know_its_facts(file_format):
    plan = a_plan((2000,) * 4)
    rows, _ = some_rows(plan, d_model=128)
    data = encode(file_format, plan, rows).read()
    asked = []

    def read(begin, end):
        asked.append(end - begin)
        return data[begin:end]

    read_metadata(read, len(data), file_format)
    assert sum(asked) <= 70_000 and len(asked) <= 3


@pytest.mark.parametrize("file_format", FORMATS)
def test_damaged_facts_are_refused(file_format):
    plan = a_plan()
    data = encode(file_format, plan, some_rows(plan)[0]).read()
    for part in (b"", data[:7], data[:20], b"\xff" * len(data)):
        with pytest.raises(ValueError):
            read_metadata(lambda begin, end, part=part: part[begin:end], len(part), file_format)


def test_tensors_come_back_as_they_were_written():
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
    data.seek(0)
    with pytest.raises(ValueError, match="the data cannot be read"):
        parse_tensors(data.read()[:-1])


@pytest.mark.parametrize("threads", [1, 3])
def test_zstd_is_the_seekable_format_and_what_it_holds_is_the_plain_file(tmp_path, monkeypatch, threads):
    monkeypatch.setattr(zstd_seekable, "FRAME_BYTES", 1000)
    plan = a_plan((50, 20, 30))
    rows, _ = some_rows(plan, dtype="bf16", d_model=24)
    expected = encode("safetensors", plan, rows).read()
    data = encode("safetensors.zst", plan, rows, threads=threads).read()
    path = tmp_path / "s.zst"
    path.write_bytes(data)
    if shutil.which("zstd"):  # its own command; the library below is the same code
        assert subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout == expected
    assert plain("safetensors.zst", data) == expected
    # The table: sizes of the frames, which are all that is before it.
    count, flags, magic = (int.from_bytes(data[a:b], "little") for a, b in ((-9, -5), (-5, -4), (-4, len(data))))
    assert (flags, magic) == (0, 0x8F92EAB1)
    table = data[-9 - 8 * count : -9]
    sizes = np.frombuffer(table, "<u4").reshape(count, 2)
    assert data[-17 - 8 * count :][:8] == (0x184D2A5E).to_bytes(4, "little") + (8 * count + 9).to_bytes(4, "little")
    begin, plain_begin = 0, 0
    for packed, size in sizes.tolist():
        frame = data[begin : begin + packed]
        assert zstandard.get_frame_parameters(frame).has_checksum
        assert zstandard.ZstdDecompressor().decompress(frame) == expected[plain_begin : plain_begin + size]
        begin, plain_begin = begin + packed, plain_begin + size
    assert (begin, plain_begin) == (len(data) - 17 - 8 * count, len(expected))
    # The header has a frame of its own, and no frame holds parts of two tensors, or of a row.
    assert sizes[0, 1] == 8 + int.from_bytes(expected[:8], "little")
    assert set(sizes[-6:, 1].tolist()) == {20 * 48}


# As in the guide that the format comes from, with nothing but numpy to help it.
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


@pytest.mark.parametrize("member_bytes", [100, 1 << 22])
@pytest.mark.parametrize(
    ("dtype", "plan", "rest"),
    [
        ("fp32", a_plan(), [{}, {}, {}]),
        ("fp16", a_plan(), [{}, {}, {}]),
        ("fp32", a_plan(pooled=True), [{}, {}, {}]),
        (
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
def test_pickle_shards_load_with_the_seeds_own_snippet_and_numpy_alone(
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
    assert eval(out) == expected  # our own output, a literal


def test_gzip_members_are_whole_files_of_their_own_without_a_time(monkeypatch):
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


@pytest.mark.long
@pytest.mark.parametrize("file_format", FORMATS)
def test_the_same_values_make_the_same_bytes_in_every_process_and_with_any_number_of_threads(tmp_path, file_format):
    script = f"""
import sys; sys.path[:0] = {[WORKER, HERE]!r}
from test_shard_file import a_plan, encode, some_rows
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


def test_a_pickle_does_not_depend_on_which_equal_values_are_one_object():
    one, other = a_plan((2, 2)), a_plan((2, 2))
    for plan, previews in ((one, ["same text"] * 2), (other, ["same text", "".join(["same", " text"])])):
        for sample, preview in zip(plan.samples, previews, strict=True):
            object.__setattr__(sample, "preview", preview)
    rows, _ = some_rows(one)
    assert encode("pkl.gz", one, rows).read() == encode("pkl.gz", other, rows).read()


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_checksum_of_a_shard_is_that_of_its_bytes(file_format):
    plan = a_plan((30, 40))
    shard = encode(file_format, plan, some_rows(plan)[0])
    data = shard.read()
    assert (shard.size, shard.crc32c) == (len(data), crc_of(data))


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (3, 0, 4), (1, 1, 1, 100)])
def test_buffers_are_read_as_one_file(sizes):
    random = np.random.default_rng(0)
    buffers = [random.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    data = b"".join(buffer.tobytes() for buffer in buffers)
    file, real = ShardBytes(buffers), io.BytesIO(data)
    assert (file.size, file.crc32c) == (len(data), crc_of(data))
    for _ in range(300):
        action, number = random.integers(0, 5), int(random.integers(-3, len(data) + 5))
        if action == 0:
            place = max(number, 0)
            assert file.seek(place) == real.seek(place)
        elif action == 1:
            assert file.seek(-min(max(number, 0), len(data)), io.SEEK_END) == real.seek(
                -min(max(number, 0), len(data)), 2
            )
        elif action == 2:
            target, expected = bytearray(abs(number)), bytearray(abs(number))
            assert file.readinto(target) == real.readinto(expected)
            assert target == expected
        else:
            assert file.read(number) == real.read(number)
        assert file.tell() == real.tell()
    file.close()
    file.seek(0)
    assert file.read() == data
