"""The safe reader of pickles: it runs no code, and a small file needs little time and memory."""

import gzip
import io
import os
import pickle

import ml_dtypes
import numpy as np
import pytest

from gleaner_reader import ShardError
from gleaner_reader.format.safe_pickle import Unsafe, load_shard
from gleaner_reader.run import pickle_shard
from gleaner_worker.records.samples.sample import Sample
from hostile_files import a_file, read_everything
from memory import MIB, at_most

pytestmark = pytest.mark.slow


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
def test_the_safe_reader_runs_no_code_of_a_pickle(name, value, protocol):
    with pytest.raises(Unsafe):
        load_shard(gzipped(pickle.dumps({0: [value]}, protocol)), 100_000)
    assert not os.path.exists("/tmp/gleaner-was-here")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a change of the array maker", b"cnumpy.core.multiarray\n_reconstruct\nN}X\x08\x00\x00\x00__code__Ns\x86b."),
        ("a change of the dtype class", b"cnumpy\ndtype\n}X\x01\x00\x00\x00aNsb."),
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
def test_the_safe_reader_refuses_other_opcodes_and_uses_of_names(name, code):
    with pytest.raises(Unsafe):
        load_shard(gzipped(code), 100_000)


def test_the_safe_reader_refuses_small_pickles_of_many_or_deeply_nested_values():
    tower = b"\x80\x04})\x94" + b"".join(b"h%c\x86\x94" % i + b"" for i in range(40))
    with pytest.raises(Unsafe):
        load_shard(gzipped(tower + b"Ns."), 100_000)
    for flood in (b"}", b"]", b")", b"N\x94"):
        file = gzipped(b"\x80\x04" + flood * 50_000 + b".")
        with at_most(MIB), pytest.raises(Unsafe, match="lists, tuples and dicts than a shard of its size"):
            load_shard(file, 100_000_000, max_value_bytes=1 << 19)
    with pytest.raises(Unsafe, match="nested deeper"):
        load_shard(gzipped(b"\x80\x04" + b"(" * 250_000), 100_000_000)


@pytest.mark.parametrize("key", [(1 << 61) - 1, 1 << 31, -(1 << 31), 1.5, b"x", None])
def test_the_safe_reader_refuses_keys_that_can_collide(key):
    for data in ({key: 1}, {key: 1, 5: 2}, {5: 2, key: 1}):
        with pytest.raises(Unsafe, match="a key that is neither a small number nor text"):
            load_shard(gzipped(pickle.dumps(data, 4)), 100_000)


def test_the_layer_of_an_array_is_found_without_a_search_of_earlier_values():
    arrays = b"".join(AN_ARRAY + b"(K\x01K\x01\x85" + FLOATS + b"\x89C\x04\x00\x00\x80\x3ftb" for _ in range(100))
    looked = []
    found = load_shard(
        gzipped(b"\x80\x04}K\x07](" + b"N" * 100_000 + arrays + b"es."),
        1_000_000,
        lambda layer, array: looked.append((layer, array.tolist())),
    )
    assert looked == [(7, [1.0])] * 100
    assert isinstance(found, dict) and len(found[7]) == 100_100


@pytest.mark.parametrize(
    ("opcode", "says"),
    [
        (b"\x95", "it cannot be read"),
        (b"\x96", "its arrays are larger than those of a shard of its size"),
        (b"\x8e", "its arrays are larger than those of a shard of its size"),
        (b"\x8d", "it has a text or a number of 1099511627776 bytes; the limit is 65536"),
    ],
)
def test_a_false_size_in_a_pickle_allocates_no_memory(opcode, says):
    with at_most(8 * MIB), pytest.raises(Unsafe, match=says):
        load_shard(gzipped(b"\x80\x05" + opcode + (1 << 40).to_bytes(8, "little") + b"."), 1 << 30)


@pytest.mark.parametrize("value", ["a" * (1 << 16), "é" * (1 << 15), 10**4000, -(10**4000)], ids=lambda v: type(v))
def test_a_text_or_an_integer_of_64_kib_is_read(value):
    assert load_shard(gzipped(pickle.dumps([value])), 0) == [value]


@pytest.mark.parametrize("opcode", [b"X", b"\x8b"], ids=["text", "integer"])
def test_a_text_or_an_integer_above_64_kib_is_refused_before_it_is_read(opcode):
    size = 9_000_000
    file = gzipped(b"\x80\x04" + opcode + size.to_bytes(4, "little") + b"a" * size + b".")
    with at_most(8 * MIB), pytest.raises(Unsafe, match="it has a text or a number of 9000000 bytes"):
        load_shard(file, 1 << 30)


def test_texts_count_with_their_memory():
    wide = ("\U0001f600" + "a" * 60_000).encode()  # 240 kB of memory
    file = gzipped(b"\x80\x04(" + (b"X" + len(wide).to_bytes(4, "little") + wide) * 1_000 + b"l.")
    with at_most(40 * MIB), pytest.raises(Unsafe, match="more text, numbers"):
        load_shard(file, 1 << 30)


@pytest.mark.parametrize("value", [[], {}, np.zeros(1, np.float32), [[1], {}]], ids=["list", "dict", "array", "lists"])
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_a_pickle_that_repeats_a_list_a_dict_or_an_array_is_refused(value, protocol):
    assert load_shard(gzipped(pickle.dumps([value, "a"], protocol)), 100_000)
    with pytest.raises(Unsafe, match="it repeats a list, a dict or an array"):
        load_shard(gzipped(pickle.dumps([value, value], protocol)), 100_000)


def test_memo_numbers_with_a_gap_are_refused():
    with at_most(8 * MIB), pytest.raises(Unsafe, match="it numbers its values in another order"):
        load_shard(gzipped(b"\x80\x04Nr\xff\xff\xff\x7f."), 100_000)


TOWER = b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(100))  # a tuple of 2^100 parts when it is written out
AN_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
FLOATS = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (b"cnumpy\ndtype\n" + TOWER + b"\x85R.", "it has an array of a tuple, not of float32"),
        (b"X\x02\x00\x00\x00os" + TOWER + b"\x93.", "STACK_GLOBAL requires str"),
        (AN_ARRAY + b"(K\x01" + TOWER + FLOATS + b"\x89C\x00tb.", "it has an array of shape a tuple, a tuple"),
    ],
)
def test_errors_of_the_safe_reader_never_print_a_value_of_exponential_size(code, says):
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
def test_the_safe_reader_refuses_a_damaged_pickle(data):
    with pytest.raises(Unsafe):
        load_shard(gzipped(data), 100_000)
    with pytest.raises(Unsafe):
        load_shard(io.BytesIO(data), 100_000)


def test_arrays_above_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pickle_shard, "FREE_BYTES", MIB)
    bomb = pickle.dumps([np.zeros(100_000, np.float32) for _ in range(10)], 4)
    with at_most(MIB), pytest.raises(Unsafe, match="its arrays are larger"):
        load_shard(gzipped(bomb), 200_000)
    path = a_file(tmp_path, gzip.compress(pickle.dumps({0: b"\x00" * (1 << 26)}, 4)), "shard_0001.pkl.gz")
    with at_most(32 * MIB), pytest.raises(ShardError, match=f"{path} is not a pickle that can be trusted: its arrays"):
        read_everything(path)
