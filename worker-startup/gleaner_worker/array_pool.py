"""Memory of shards that later shards use again, because a page costs the kernel most at its first touch."""

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
        # A view refers to `array`, because the memory is no array itself: numpy leaves out arrays between.
        # Without the lock: the collector of garbage may call this on a thread that holds it.
        weakref.finalize(array, self.free.append, memory).atexit = False
        return array

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            for _ in range(len(self.free)):
                memory = self.free.popleft()
                if len(memory) == size:
                    return memory
                self.free.append(memory)
            if self.free:
                self.free.popleft()  # of another size
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):  # a system or a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory


def size_class(size: int) -> int:
    """`size` and at most an eighth more, in whole pages: shards of one run differ by a few samples."""
    step = max(4096, 1 << max(size.bit_length() - 4, 0))
    return -(-max(size, 1) // step) * step
