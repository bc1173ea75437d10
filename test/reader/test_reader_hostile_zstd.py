"""Hostile tables of zstd frames."""

import struct

import pytest
import zstandard

from gleaner_reader import ShardError
from hostile_files import a_file, a_header, a_tensor, read_everything
from memory import MIB, at_most


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
        ("no frames", a_table([]), "does not match the file"),
        ("unknown flags", GOOD + a_table([(GOOD, GOOD_SIZE)], flags=4), "it is damaged"),
        ("other sizes", GOOD + a_table([(GOOD + b"x", GOOD_SIZE)]), "does not match the file"),
        ("a frame that says less", GOOD + a_table([(GOOD, GOOD_SIZE - 1)]), "does not have the .* bytes that the"),
        ("a frame of 4 GB", GOOD + a_table([(GOOD, 2**32 - 1)]), "does not match the file"),
        ("a damaged frame", GOOD[:-1] + b"x" + a_table([(GOOD, GOOD_SIZE)]), "frame 0 is damaged"),
        ("no frame", b"x" * len(GOOD) + a_table([(GOOD, GOOD_SIZE)]), "frame 0 "),
    ],
)
def test_a_hostile_table_of_frames_is_refused(tmp_path, name, data, says):
    path = a_file(tmp_path, data, "shard_0001.safetensors.zst")
    with at_most(16 * MIB), pytest.raises(ShardError, match=f"^{path} .*{says}"):
        read_everything(path)


def test_a_zstd_bomb_is_refused_in_little_memory(tmp_path):
    bomb = packed(bytes(64 * MIB))
    path = a_file(tmp_path, bomb + a_table([(bomb, 60)]), "shard_0001.safetensors.zst")
    with at_most(16 * MIB), pytest.raises(ShardError, match=f"^{path} .*does not have the 60 bytes"):
        read_everything(path)
