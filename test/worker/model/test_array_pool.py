"""The memory that shards reuse: one shard at a time, and without values of an earlier shard."""

import gc

import ml_dtypes
import numpy as np
import pytest

from build import SMALL, a_stream, outputs, text_lines
from gleaner_worker.model.array_pool import ArrayPool, size_class
from gleaner_worker.shards.shard_bytes import bytes_of

BF16 = np.dtype(ml_dtypes.bfloat16)


def address(array):
    return array.__array_interface__["data"][0]


def test_the_pool_reuses_memory_after_the_last_view_of_an_array_ends():
    pool = ArrayPool()
    array = pool.empty((2, 1000, 8), BF16)
    place, view = address(array), memoryview(bytes_of(array[1]))
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((2, 1000, 8), BF16, True)
    del array
    assert address(pool.empty((2, 1000, 8), BF16)) != place  # the view is in use
    view.release()
    again = {address(array) for array in [pool.empty((2, 990, 8), BF16), pool.empty((2, 1000, 8), BF16)]}
    assert place in again and len(again) == 2


def test_the_pool_holds_no_more_arrays_than_were_in_use_together():
    pool = ArrayPool()
    for size in (10_000, 200_000, 3_000_000):
        arrays = [pool.empty((size,), np.dtype(np.uint8)) for _ in range(3)]
        assert len(pool.free) == 0
        del arrays
        assert [len(memory) for memory in pool.free] == [size_class(size)] * 3


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 65_537, 10**6, 2**30, 10**9 + 1])
def test_a_size_class_wastes_at_most_an_eighth_or_a_page(size):
    assert size <= size_class(size) <= max(size * 1.125, size + 4096)


def poison(model):
    """Fills the memory of earlier shards with ones: NaN in every float."""
    gc.collect()
    for memory in model.shard_arrays.free:
        memory[:] = b"\xff" * len(memory)
    return len(model.shard_arrays.free)


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"dtype": "fp16", "format": "safetensors.zst", "tokens": "::2"},
        {"dtype": "int8", "tokens": "mean", "sites": ["resid_pre", "mlp_out"]},
        {"dtype": "fp32", "format": "pkl.gz"},
    ],
    ids=str,
)
def test_a_shard_has_no_value_of_an_earlier_shard(storage, extract, interrupted, tiny_models, clean, spec):
    spec |= {"shard_size_gb": SMALL}
    resource, model = a_stream(storage, text_lines(60)), tiny_models(**spec)
    model.shard_arrays.free.clear()
    extract(resource, **spec)
    expected = outputs(storage)
    for samples in (10**9, 20):
        clean()
        for epoch in range(1, 30):
            assert poison(model) > 0
            if interrupted(resource, samples, epoch=epoch, **spec).outcome == "completed":
                break
        assert outputs(storage) == expected
