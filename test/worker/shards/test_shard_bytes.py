"""The buffers of a shard as one file, with the checksum of its bytes."""

import io

import numpy as np
import pytest

from encoded_shards import FORMATS, a_plan, crc_of, encode, some_rows
from gleaner_worker.shards.shard_bytes import ShardBytes


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
        action, number = random.integers(0, 4), int(random.integers(-3, len(data) + 5))
        if action == 0:
            place = max(number, 0)
            assert file.seek(place) == real.seek(place)
        elif action == 1:
            assert file.seek(-min(max(number, 0), len(data)), io.SEEK_END) == real.seek(
                -min(max(number, 0), len(data)), 2
            )
        else:
            assert file.read(number) == real.read(number)
        assert file.tell() == real.tell()
    file.seek(0)
    assert file.read() == data
