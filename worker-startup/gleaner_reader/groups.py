"""Groups of rows of a shuffle, read one after the other, with the next group prefetched."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from .shuffle import Group, Shuffle, cut, plan_groups, read_group


class Groups:
    """Reads groups in one process: its thread prefetches, so another process needs Groups of its own."""

    def __init__(self, shuffle: Shuffle):
        self._shuffle = shuffle
        self._chunks = cut(shuffle)
        self._pool: ThreadPoolExecutor | None = None
        self._current: tuple[tuple[int, int], Group] | None = None
        self._next: tuple[tuple[int, int], Future] | None = None
        self._planned: tuple[int, list[np.ndarray]] | None = None

    def load(self, epoch: int, number: int, is_last_epoch: bool) -> Group | None:
        """Loads a group and prefetches the group after it. Returns None at the end of the epoch."""
        due = (epoch, number)
        if self._current is not None and self._current[0] == due:
            return self._current[1]
        self._current = None  # frees the memory before the group after it is read
        count = len(self._plan(epoch))
        if number >= count:
            return None
        ahead, self._next = self._next, None
        future = ahead[1] if ahead and ahead[0] == due else self._submit(due)
        self._current = (due, future.result())
        if number + 1 < count:
            self._prefetch((epoch, number + 1))
        elif not is_last_epoch:
            self._prefetch((epoch + 1, 0))
        return self._current[1]

    def close(self) -> None:
        """Frees the rows and stops the prefetch. A later load reads again."""
        self._next = self._current = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _prefetch(self, due: tuple[int, int]) -> None:
        self._next = (due, self._submit(due))

    def _submit(self, due: tuple[int, int]) -> Future:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "batches")
        return self._pool.submit(read_group, self._shuffle, self._plan(due[0])[due[1]], *due)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, plan_groups(self._shuffle, self._chunks, epoch))
        return self._planned[1]
