"""Files that are damaged or hostile: refused by name, in little memory."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gleaner_reader
from encoded_shards import parse_tensors
from gleaner_reader import ShardError
from gleaner_reader.run.formats import read_facts
from gleaner_worker.shards.zstd_seekable import compress
from hostile_files import a_file, a_header, a_shard, a_tensor, read_everything
from memory import MIB, at_most

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("nothing", b"", "it has 0 bytes, which cannot hold its header"),
        ("too little", b"\x01\x00", "it has 2 bytes"),
        ("a header of 2^63 bytes", a_header(b"{}", size=1 << 63), "cannot hold its header; it was cut short"),
        ("a header beyond the end", a_header(b"{}", size=3), "cannot hold its header"),
        ("no JSON", a_header(b"{]"), "its header is not JSON"),
        ("no text", a_header(b"\xff\xfe{}"), "its header is not text"),
        ("a list", a_header([1]), "its header is not a JSON object"),
        ("nested", a_header(b"[" * 50_000), "its header "),
        ("a number of 5,000 digits", a_header(b'{"a": ' + b"9" * 5000 + b"}"), "its header "),
        ("NaN", a_header(b'{"a": NaN}'), "its header has NaN in it"),
        ("one name twice", a_header(b'{"a": 1, "a": 1}'), "its header has a name twice"),
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
        ("rows of numbers", a_header({"resid_post.0": a_tensor("U8", (1, 4))}, b"1234"), "its rows are not"),
        ("no index", a_header({"resid_post.0": a_tensor()}, b"1234"), "it has no sample_idx"),
    ],
)
def test_a_hostile_header_is_refused_by_name_and_in_little_memory(tmp_path, name, data, says):
    path = a_file(tmp_path, data)
    with at_most(16 * MIB), pytest.raises(ShardError, match=f"^{path} .*{says}"):
        read_everything(path)


def test_a_header_of_100_megabytes_is_refused_before_it_is_read(tmp_path):
    path = a_file(tmp_path, a_header(b"{}", size=100_000_000))
    os.truncate(path, 8 + 100_000_000)
    with at_most(16 * MIB), pytest.raises(ShardError, match=f"^{path} .*its header would have 100000000 bytes"):
        read_everything(path)


def test_a_header_of_too_many_tensors_is_refused(tmp_path):
    path = a_file(tmp_path, a_header({str(number): 0 for number in range(100_001)}))
    with at_most(64 * MIB), pytest.raises(ShardError, match="describes 100001 tensors, at most 100000 are read"):
        read_everything(path)


def test_an_index_that_unpacks_to_more_than_its_file_describes_is_refused(tmp_path):
    """200 MiB of token ids, in 2 kB of frames that hold zeros."""
    count = 50 * MIB
    tensors = {
        "resid_post.0": a_tensor(offsets=(0, 4)),
        "sample_idx": a_tensor("I64", (1,), (4, 12)),
        "sample_offsets": a_tensor("I64", (2,), (12, 28)),
        "token_ids": a_tensor("I32", (count,), (28, 28 + 4 * count)),
    }
    first = np.frombuffer(a_header(tensors, bytes(28)), np.uint8)
    path = a_file(
        tmp_path, b"".join(compress([first, *[np.zeros(4 * MIB, np.uint8)] * 50], 1)), "shard_0001.safetensors.zst"
    )
    with at_most(32 * MIB), pytest.raises(ShardError, match="its index would have 209715224 bytes in a file of"):
        gleaner_reader.open(path).index()


def test_names_of_a_shard_drive_no_terminal(tmp_path):
    path = a_file(tmp_path, a_header({"\x1b[2J\u202e": 1}))
    with pytest.raises(ShardError) as refused:
        read_everything(path)
    assert "\\x1b[2J\\u202e" in str(refused.value) and str(refused.value).isprintable()


def wrap(values):
    """Sets neighbours whose differences overflow 64 bits to a value above zero."""
    values[1:3] = 2**63 - 1, int(values[3]) - (2**63 - 1)


INDEX_CHANGES = [
    ("sample_offsets", lambda v: v.__setitem__(1, 9999), "has sample_offsets that do not divide its tokens"),
    ("sample_offsets", lambda v: v.__setitem__(0, 1), "has sample_offsets that do not divide its tokens"),
    ("sample_offsets", lambda v: v.__setitem__(1, -5), "has sample_offsets that do not divide its tokens"),
    ("row_offsets", lambda v: v.__setitem__(-1, 2**62), "has row_offsets that do not divide its rows"),
    ("sample_offsets", wrap, "has sample_offsets that do not divide its tokens"),
    ("row_offsets", wrap, "has row_offsets that do not divide its rows"),
    ("sample_idx", wrap, "holds samples out of order"),
    ("positions", lambda v: v.__setitem__(0, -1), "its positions are not .* numbers from 0"),
    ("positions", lambda v: v.__setitem__(0, 2**31 - 1), "positions that its samples lack"),
    ("sample_idx", lambda v: v.__setitem__(1, 0), "holds samples out of order"),
    ("kept", lambda v: v.__setitem__(0, ord("[")), "the kept fields of its samples are damaged"),
    (
        "kept",
        lambda v: v.__setitem__(slice(0, 2), [ord("1"), ord("\n")]),
        "the kept fields|its kept fields are not .* objects",
    ),
]


@pytest.mark.parametrize(("tensor", "change", "says"), INDEX_CHANGES)
def test_a_contradictory_index_is_refused(tmp_path, tensor, change, says):
    data = bytearray(a_shard())
    tensors, _ = parse_tensors(memoryview(data))
    change(tensors[tensor])
    path = a_file(tmp_path, data)
    with pytest.raises(ShardError, match=f"^{path} .*({says})"):
        gleaner_reader.open(path).index()


@pytest.mark.parametrize("file_format", ["safetensors", "safetensors.zst", "pkl.gz"])
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_a_changed_byte_is_found_or_harmless(tmp_path, file_format, dtype):
    if file_format == "pkl.gz" and dtype == "int8":
        dtype = "fp16"
    data = a_shard(file_format, dtype)
    path = a_file(tmp_path, data, f"shard_0001.{file_format}")
    expected, facts = read_everything(path)
    index = gleaner_reader.open(path).index()

    @settings(max_examples=settings().max_examples // 2)
    @given(place=st.integers(0, len(data) - 1), flip=st.integers(1, 255))
    def check(place, flip):
        damaged = bytearray(data)
        damaged[place] ^= flip
        a_file(tmp_path, damaged, f"shard_0001.{file_format}")
        try:
            found, told = read_everything(path)
        except (ShardError, ValueError):
            return
        # Harmless: no value differs. (The header has checksums of the values, but none of its own facts.)
        assert found.keys() != expected.keys() or all(np.array_equal(found[key], expected[key]) for key in expected)
        if file_format == "pkl.gz" and told == facts:
            assert gleaner_reader.open(path).index().sample_idx.tolist() == index.sample_idx.tolist()

    check()


@settings(max_examples=50)
@given(data=st.binary(max_size=300), file_format=st.sampled_from(["safetensors", "safetensors.zst", "pkl.gz"]))
def test_random_bytes_are_refused(tmp_path_factory, data, file_format):
    path = a_file(tmp_path_factory.getbasetemp(), data, f"any.{file_format}")
    with pytest.raises(ShardError):
        read_everything(path)
    with pytest.raises(ValueError):
        read_facts(
            lambda begin, end: data[begin:end], len(data), file_format if file_format != "pkl.gz" else "safetensors"
        )
