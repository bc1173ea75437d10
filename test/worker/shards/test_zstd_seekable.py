"""The seekable format of zstd, read by zstd itself."""

import shutil
import subprocess

import numpy as np
import pytest
import zstandard

from encoded_shards import a_plan, encode, plain, some_rows
from gleaner_worker.shards import zstd_seekable


@pytest.mark.parametrize("threads", [1, 3])
def test_zstd_shards_are_in_the_seekable_format_and_hold_the_plain_file(tmp_path, monkeypatch, threads):
    monkeypatch.setattr(zstd_seekable, "FRAME_BYTES", 1000)
    plan = a_plan((50, 20, 30))
    rows, _ = some_rows(plan, dtype="bf16", d_model=24)
    expected = encode("safetensors", plan, rows).read()
    data = encode("safetensors.zst", plan, rows, threads=threads).read()
    path = tmp_path / "s.zst"
    path.write_bytes(data)
    if shutil.which("zstd"):  # the command of zstd; the library below is the same code
        assert subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout == expected
    assert plain("safetensors.zst", data) == expected
    # The table has the sizes of all frames before it.
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
    # The header has a frame of its own, and no frame holds parts of two tensors or of one row.
    assert sizes[0, 1] == 8 + int.from_bytes(expected[:8], "little")
    assert set(sizes[-6:, 1].tolist()) == {20 * 48}
