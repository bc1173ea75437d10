"""A bound on the memory that a block of a test uses."""

import tracemalloc
from contextlib import contextmanager

MIB = 1 << 20


@contextmanager
def at_most(size_bytes):
    """Fails if the block ever uses `size_bytes` or more."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size_bytes
    finally:
        tracemalloc.stop()
