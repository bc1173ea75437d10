"""Files that are damaged, or made to hurt: each is refused by name, and none costs more memory than it is worth."""

import gzip
import io
import json
import os
import pickle
import struct
import tracemalloc
import warnings
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import gleaner_reader
from gleaner_reader import ShardError
from gleaner_reader.checksums import as_text, combine, crc32c, crc32c_by_numpy
from gleaner_reader.gzip_header import gzip_header
from gleaner_reader.header import parse_tensors, read_metadata
from gleaner_reader.safe_pickle import Unsafe, load_shard
from gleaner_worker.records.samples import Sample
from stored_run import a_plan, encode, some_rows

pytestmark = pytest.mark.slow

MIB = 1 << 20


@contextmanager
def at_most(size_bytes):
    """Fails when more memory than that is in use at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size_bytes
    finally:
        tracemalloc.stop()


def read_everything(path):
    shard = gleaner_reader.open(path)
    shard.index()
    return {(site, layer): shard.read(layer, site, verify=True) for site, layer in shard.names}, shard.metadata


def a_file(tmp_path, data, name="shard_0001.safetensors"):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def a_header(header, body=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def a_tensor(dtype="F32", shape=(1, 1), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("nothing", b"", "it has 0 bytes, which cannot hold its header"),
        ("too little", b"\x01\x00", "it has 2 bytes"),
        ("a header of 2^63 bytes", a_header(b"{}", size=1 << 63), "cannot hold its header; it was cut short"),
        ("a header of 100 MB", a_header(b" " * 100_000_000), "its header would have 100000000 bytes"),
        ("a header beyond the end", a_header(b"{}", size=3), "cannot hold its header"),
        ("no JSON", a_header(b"{]"), "its header is not JSON"),
        ("no text", a_header(b"\xff\xfe{}"), "its header is not text"),
        ("a list", a_header([1]), "its header is not a JSON object"),
        ("nested", a_header(b"[" * 50_000), "its header "),
        ("a number of 5,000 digits", a_header(b'{"a": ' + b"9" * 5000 + b"}"), "its header "),
        ("NaN", a_header(b'{"a": NaN}'), "its header has NaN in it"),
        ("one name twice", a_header(b'{"a": 1, "a": 1}'), "its header says one thing twice"),
        ("metadata that is no text", a_header({"__metadata__": {"a": 1}}), "a __metadata__ that does not map text"),
        ("metadata that is a list", a_header({"__metadata__": []}), "a __metadata__ that does not map text"),
        ("a tensor that is a number", a_header({"a": 1}), "describes a by other fields"),
        ("a tensor with more fields", a_header({"a": a_tensor(x=1)}, b"1234"), "describes a by other fields"),
        ("an unknown dtype", a_header({"a": a_tensor("C64")}, b"1234"), "gives a the dtype 'C64', known are BF16"),
        ("a dtype that is a list", a_header({"a": a_tensor([])}, b"1234"), r"gives a the dtype \[\]"),
        ("a negative shape", a_header({"a": a_tensor(shape=(-1, -1))}, b"1234"), r"gives a the shape \[-1, -1\]"),
        ("a shape of text", a_header({"a": a_tensor(shape=("1",))}, b"1234"), "gives a the shape"),
        ("a shape of true", a_header({"a": a_tensor(shape=(True, 1))}, b"1234"), "gives a the shape"),
        ("a huge shape", a_header({"a": a_tensor(shape=(1 << 61, 1 << 61))}, b"1234"), "which has another size"),
        ("many dimensions", a_header({"a": a_tensor(shape=[1] * 1000)}, b"1234"), "gives a the shape"),
        ("another size", a_header({"a": a_tensor(offsets=(0, 8))}, b"12345678"), "which has another size"),
        ("an end before the begin", a_header({"a": a_tensor(shape=(0,), offsets=(4, 0))}, b"1234"), "another size"),
        ("negative offsets", a_header({"a": a_tensor(offsets=(-4, 0))}, b"1234"), "puts a at"),
        ("three offsets", a_header({"a": a_tensor(offsets=(0, 4, 8))}, b"1234"), "puts a at"),
        ("an overlap", a_header({"a": a_tensor(), "b": a_tensor()}, b"1234"), "tensors overlap or leave a gap"),
        ("a gap", a_header({"a": a_tensor(offsets=(4, 8))}, b"12345678"), "where byte .* is due"),
        ("bytes after the end", a_header({"a": a_tensor()}, b"12345"), "its header describes"),
        ("no rows", a_header({"a": a_tensor()}, b"1234"), "holds no rows"),
        (
            "rows in three dimensions",
            a_header({"resid_post.0": a_tensor(shape=(1, 1, 1))}, b"1234"),
            "its rows are not",
        ),
        (
            "rows without values",
            a_header({"resid_post.0": a_tensor(shape=(1 << 61, 0), offsets=(0, 0))}),
            "its rows are not",
        ),
        ("rows of numbers", a_header({"resid_post.0": a_tensor("I32")}, b"1234"), "its rows are not"),
        ("no index", a_header({"resid_post.0": a_tensor()}, b"1234"), "it has no sample_idx"),
    ],
)
def test_a_hostile_header_is_refused_by_name_and_in_little_memory(tmp_path, name, data, says):
    path = a_file(tmp_path, data)
    with at_most(16 * MIB), pytest.raises(ShardError, match=f"^{path} .*{says}"):
        read_everything(path)


def a_shard(file_format="safetensors", dtype="bf16", **options):
    plan = a_plan(count=20, keep=True, tokens=slice(0, 4), **options)
    rows, scale, _ = some_rows(plan, ("resid_post",), (0, 1), 8, dtype)
    return encode(plan, rows, scale, (0, 1), file_format).read()


def wrap(values):
    """Neighbours whose differences are above zero again in 64 bits."""
    values[1:3] = 2**63 - 1, int(values[3]) - (2**63 - 1)


INDEX_CHANGES = [
    ("sample_offsets", lambda v: v.__setitem__(1, 9999), "has sample_offsets that do not divide its tokens"),
    ("sample_offsets", lambda v: v.__setitem__(0, 1), "has sample_offsets that do not divide its tokens"),
    ("sample_offsets", lambda v: v.__setitem__(1, -5), "has sample_offsets that do not divide its tokens"),
    ("row_offsets", lambda v: v.__setitem__(-1, 2**62), "has row_offsets that do not divide its rows"),
    ("sample_offsets", wrap, "has sample_offsets that do not divide its tokens"),
    ("row_offsets", wrap, "has row_offsets that do not divide its rows"),
    ("sample_idx", wrap, "holds samples out of order"),
    ("positions", lambda v: v.__setitem__(0, -1), "it has not one position for each row"),
    ("positions", lambda v: v.__setitem__(0, 2**31 - 1), "positions that its samples lack"),
    ("sample_idx", lambda v: v.__setitem__(1, 0), "holds samples out of order"),
    ("kept", lambda v: v.__setitem__(0, ord("[")), "what it kept of its samples is damaged"),
    ("kept", lambda v: v.__setitem__(slice(0, 2), [ord("1"), ord("\n")]), "what it kept|not one object of kept fields"),
]


@pytest.mark.parametrize(("tensor", "change", "says"), INDEX_CHANGES)
def test_an_index_that_contradicts_itself_is_refused(tmp_path, tensor, change, says):
    data = bytearray(a_shard())
    tensors, _ = parse_tensors(memoryview(data))
    change(tensors[tensor])
    path = a_file(tmp_path, data)
    with pytest.raises(ShardError, match=f"^{path} .*({says})"):
        gleaner_reader.open(path).index()


@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst", "pkl.gz"])
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_a_byte_that_is_changed_is_found_or_harmless(tmp_path, file_format, dtype):
    if file_format == "pkl.gz" and dtype == "int8":
        dtype = "fp16"
    data = a_shard(file_format, dtype)
    path = a_file(tmp_path, data, f"shard_0001.{file_format}")
    expected, facts = read_everything(path)
    index = gleaner_reader.open(path).index()

    @settings(max_examples=120)
    @given(place=st.integers(0, len(data) - 1), flip=st.integers(1, 255))
    def check(place, flip):
        damaged = bytearray(data)
        damaged[place] ^= flip
        a_file(tmp_path, damaged, f"shard_0001.{file_format}")
        try:
            found, told = read_everything(path)
        except (ShardError, ValueError):
            return
        # Harmless: no value is another. (What is told in a header has no checksum but those of the values themselves.)
        assert found.keys() != expected.keys() or all(np.array_equal(found[key], expected[key]) for key in expected)
        if file_format == "pkl.gz" and told == facts:
            assert gleaner_reader.open(path).index().sample_idx.tolist() == index.sample_idx.tolist()

    check()


@settings(max_examples=100)
@given(data=st.binary(max_size=300), file_format=st.sampled_from(["safetensors", "safetensors.zst", "pkl.gz"]))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data, file_format):
    path = a_file(tmp_path_factory.getbasetemp(), data, f"any.{file_format}")
    with pytest.raises(ShardError):
        read_everything(path)
    with pytest.raises(ValueError):
        read_metadata(
            lambda begin, end: data[begin:end], len(data), file_format if file_format != "pkl.gz" else "safetensors"
        )


def a_table(frames, flags=0, count=None, magic=0x8F92EAB1):
    entries = b"".join(struct.pack("<II", len(packed), size) for packed, size in frames)
    footer = struct.pack("<IBI", len(frames) if count is None else count, flags, magic)
    return struct.pack("<II", 0x184D2A5E, len(entries) + len(footer)) + entries + footer


def packed(data):
    return zstandard.ZstdCompressor(1, write_checksum=True).compress(data)


GOOD = packed(a_header({"resid_post.0": a_tensor()}, b"1234"))
GOOD_SIZE = len(a_header({"resid_post.0": a_tensor()}, b"1234"))


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("no table", GOOD, "does not end with a table of its frames"),
        ("nothing", b"", "does not end with a table"),
        ("a table cut short", GOOD + a_table([(GOOD, GOOD_SIZE)])[:-1], "does not end with a table"),
        ("2^32 frames", GOOD + a_table([(GOOD, GOOD_SIZE)], count=2**32 - 1), "would have 4294967295 frames"),
        ("more frames than bytes", GOOD + a_table([(GOOD, GOOD_SIZE)], count=1000), "would have 1000 frames"),
        ("no frames", a_table([]), "does not fit it"),
        ("flags of the future", GOOD + a_table([(GOOD, GOOD_SIZE)], flags=4), "it is damaged"),
        ("other sizes", GOOD + a_table([(GOOD + b"x", GOOD_SIZE)]), "does not fit it"),
        ("a frame that says less", GOOD + a_table([(GOOD, GOOD_SIZE - 1)]), "has not the .* bytes that its table says"),
        ("a frame of 4 GB", GOOD + a_table([(GOOD, 2**32 - 1)]), "does not fit it"),
        ("a bomb", packed(bytes(1 << 26)) + a_table([(packed(bytes(1 << 26)), 60)]), "has not the 60 bytes"),
        ("a damaged frame", GOOD[:-1] + b"x" + a_table([(GOOD, GOOD_SIZE)]), "frame 0 is damaged"),
        ("no frame", b"x" * len(GOOD) + a_table([(GOOD, GOOD_SIZE)]), "frame 0 "),
    ],
)
def test_a_hostile_table_of_frames_is_refused(tmp_path, name, data, says):
    path = a_file(tmp_path, data, "shard_0001.safetensors.zst")
    with at_most(16 * MIB), pytest.raises(ShardError, match=f"^{path} .*{says}"):
        read_everything(path)


def test_the_checksum_is_the_one_of_cloud_storage():
    import google_crc32c

    data = np.random.default_rng(0).integers(0, 256, 10_000_001, dtype=np.uint8)
    for size in (0, 1, 3, 1023, 1024, 1025, 5000, len(data)):
        expected = google_crc32c.extend(0, data[:size])
        assert crc32c(data[:size]) == crc32c_by_numpy(data[:size]) == expected
        assert (
            as_text(expected) == __import__("base64").b64encode(google_crc32c.Checksum(data[:size]).digest()).decode()
        )
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its specification
    assert combine(crc32c(data[:777]), crc32c(data[777:]), len(data) - 777) == crc32c(data)


def gzipped(data):
    return io.BytesIO(gzip.compress(data, 1, mtime=0))


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], tuple(self.call[1:])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a command", Evil(os.system, "touch /tmp/gleaner-was-here")),
        ("eval", Evil(eval, "1")),
        ("an attribute of numpy", Evil(np.load, "x")),
        ("an array of objects", np.array([{}, 1], dtype=object)),
        ("an array of doubles", np.zeros(3)),
        ("an array of records", np.zeros(3, [("a", "f4")])),
        ("big endian", np.zeros(3, ">f4")),
        ("bf16", np.zeros(3, ml_dtypes.bfloat16)),
        ("a class of ours", Sample(0, np.zeros(1, np.int32), None, "", False)),
        ("a set", {1, 2}.__class__),
        ("a set of values", {1, 2}),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_safe_reader_runs_nothing(name, value, protocol):
    with pytest.raises(Unsafe):
        load_shard(gzipped(pickle.dumps({0: [value]}, protocol)), 100_000)
    assert not os.path.exists("/tmp/gleaner-was-here")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a change of what makes arrays", b"cnumpy.core.multiarray\n_reconstruct\nN}X\x08\x00\x00\x00__code__Ns\x86b."),
        ("a change of what makes types", b"cnumpy\ndtype\n}X\x01\x00\x00\x00aNsb."),
        ("a call of an array's class", b"cnumpy\nndarray\n)R."),
        ("another first argument", b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\n\x85R."),
        ("a persistent object", b"\x80\x04P0\n."),
        ("an instance by its name", b"(ios\nsystem\n."),
        ("an extension", b"\x80\x02\x82\x01."),
        ("a key that is a tuple of tuples", b"\x80\x04})" + b"\x94h\x00\x86" + b"Ns."),
        ("a mark that is missing", b"\x80\x04u."),
        ("nothing on the stack", b"\x80\x04."),
        ("a value that is missing", b"\x80\x04K\x01\x86."),
        ("an append to a number", b"\x80\x04K\x01K\x02a."),
        ("a shape of text", b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n)C\x01bt R."),
    ],
)
def test_the_safe_reader_knows_no_other_tricks(name, code):
    with pytest.raises(Unsafe):
        load_shard(gzipped(code), 100_000)


def test_the_safe_reader_cannot_be_kept_busy_by_little():
    tower = b"\x80\x04})\x94" + b"".join(b"h%c\x86\x94" % i + b"" for i in range(40))
    with pytest.raises(Unsafe):
        load_shard(gzipped(tower + b"Ns."), 100_000)
    for flood in (b"}" * 10_000_000, b"]" * 10_000_000, b")" * 10_000_000):
        file = gzipped(b"\x80\x04" + flood + b".")
        with at_most(32 * MIB), pytest.raises(Unsafe, match="more lists, tuples and dicts than a shard"):
            load_shard(file, 100_000_000)
    with pytest.raises(Unsafe, match="nested deeper"):
        load_shard(gzipped(b"\x80\x04" + b"(" * 1_000_000), 100_000_000)


TOWER = b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(100))  # a tuple of 2^100 parts, when it is written out
AN_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
FLOATS = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (b"cnumpy\ndtype\n" + TOWER + b"\x85R.", "it has an array of a tuple, not of float32"),
        (b"X\x02\x00\x00\x00os" + TOWER + b"\x93.", "it asks for os.a tuple"),
        (AN_ARRAY + b"(K\x01" + TOWER + FLOATS + b"\x89C\x00tb.", "it has an array of shape a tuple, a tuple"),
    ],
)
def test_the_safe_reader_writes_out_nothing_that_holds_itself_many_times(code, says):
    with pytest.raises(Unsafe, match=says):
        load_shard(gzipped(b"\x80\x04" + code), 100_000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04",
        b"junk",
        pickle.dumps({0: []})[:-1],
        b"\x80\x04P\x00.",
        b"\x80\x04\x96" + b"\xff" * 7 + b"\x7f.",
        b"\x80\x04\x8e" + b"\xff" * 8 + b".",
    ],
)
def test_the_safe_reader_refuses_what_is_damaged(data):
    with pytest.raises(Unsafe):
        load_shard(gzipped(data), 100_000)
    with pytest.raises(Unsafe):
        load_shard(io.BytesIO(data), 100_000)


def test_the_safe_reader_refuses_more_than_it_was_promised(tmp_path):
    bomb = pickle.dumps({0: "a" * 50_000_000}, 4)
    with pytest.raises(Unsafe, match="larger than its metadata says"):
        load_shard(gzipped(bomb), 100_000)
    flood = pickle.dumps({0: ["a" * 1000] * 50_000}, 4)
    with pytest.raises(Unsafe, match="larger than its metadata says"):
        load_shard(gzipped(flood), 10_000)
    path = a_file(tmp_path, gzip.compress(pickle.dumps({0: b"\x00" * (1 << 28)}, 4)), "shard_0001.pkl.gz")
    with (
        at_most(100 * MIB),
        pytest.raises(ShardError, match=f"{path} is not a pickle that can be trusted: it is larger"),
    ):
        read_everything(path)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_pickles_of_others_are_read_too(tmp_path, protocol, dtype):
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
def test_a_pickle_that_is_no_shard_is_refused(tmp_path, name, data):
    path = a_file(tmp_path, gzip.compress(pickle.dumps(data)), "shard_0001.pkl.gz")
    with pytest.raises(ShardError, match=f"^{path} "):
        read_everything(path)


def test_values_that_two_layers_share_are_those_of_the_first(tmp_path):
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
def test_a_pickle_that_counts_what_it_does_not_hold_is_refused_in_little_memory(tmp_path, name, arrays, facts, says):
    body = gzip.compress(pickle.dumps({0: entries_of(arrays)}))
    if facts:
        body = gzip_header({"stats": '{"resid_post.0": {}}'} | facts) + body[10:]
    path = a_file(tmp_path, body, "shard_0001.pkl.gz")
    with at_most(100 * MIB), pytest.raises(ShardError, match=f"^{path} .*{says}"):
        gleaner_reader.open(path).read(0)


def test_a_shard_of_equal_rows_is_read_however_far_they_shrink(tmp_path):
    plan = a_plan(count=300)
    rows = {"resid_post": np.ones((2, plan.rows, 8192), np.float32)}
    path = a_file(tmp_path, encode(plan, rows, {}, (0, 1), "pkl.gz").read(), "shard_0001.pkl.gz")
    assert rows["resid_post"].nbytes > 20 * os.path.getsize(path) + (1 << 26)
    shard = gleaner_reader.open(path)
    assert np.array_equal(shard.read(1), rows["resid_post"][1])
    assert shard.index().row_offsets[-1] == plan.rows


def test_a_header_lets_no_more_be_read_than_it_says(tmp_path):
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
