"""Memory of shards for reuse by later shards, because the first touch of a page costs the kernel most."""

import math
import mmap
import threading
import weakref
from collections import deque
from contextlib import suppress

import numpy as np


class ArrayPool:
    """Every method may be called from any thread. The pool never holds more arrays than were in use together."""

    def __init__(self):
        self.free: deque[mmap.mmap] = deque()
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of arbitrary values. Its memory returns to the pool with the last reference to it or to a view."""
        memory = self._take(size_class(math.prod(shape) * dtype.itemsize))
        array = np.ndarray(shape, dtype, memory)
        # The base of a view is `array`, because `memory` is no array: numpy skips arrays in between.
        # No lock here: the garbage collector may call this on a thread that holds the lock.
        weakref.finalize(array, self.free.append, memory).atexit = False  # pyrefly: ignore[missing-attribute]
        return array

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            for _ in range(len(self.free)):
                memory = self.free.popleft()
                if len(memory) == size:
                    return memory
                self.free.append(memory)
            if self.free:
                self.free.popleft()  # releases memory of another size
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):  # a system or a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory


def size_class(size: int) -> int:
    """Rounds `size` up by at most an eighth or a page, because shards of one run differ by a few samples. Bytes."""
    step = max(4096, 1 << max(size.bit_length() - 4, 0))
    return -(-max(size, 1) // step) * step
