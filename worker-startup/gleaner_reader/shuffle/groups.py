"""Groups of rows of a shuffle, read one after the other, with the next group prefetched."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ..format.convert import Rows
from .shuffle import Group, Shuffle, cut, empty_buffer, plan_groups, read_group


class _Reading(NamedTuple):
    """A group that a thread reads into a buffer. due: its epoch and number."""

    due: tuple[int, int]
    group: "Future[Group]"
    buffer: Rows


class Groups:
    """Reads groups in one process: its thread prefetches, so another process needs Groups of its own.

    Two buffers take turns, because the first use of memory costs as much as the read.
    """

    def __init__(self, shuffle: Shuffle):
        self._shuffle = shuffle
        self._chunks = cut(shuffle)
        self._pool: ThreadPoolExecutor | None = None
        self._current: _Reading | None = None
        self._next: _Reading | None = None
        self._free: list[Rows] = []
        self._planned: tuple[int, list[np.ndarray]] | None = None

    def load(self, epoch: int, number: int, is_last_epoch: bool) -> Group | None:
        """Loads a group and prefetches the group after it. Returns None at the end of the epoch.

        The rows of an earlier group are gone.
        """
        due = (epoch, number)
        if self._current is not None and self._current.due == due:
            return self._current.group.result()
        if self._current is not None:
            self._free.append(self._current.buffer)
            self._current = None
        count = len(self._plan(epoch))
        if number >= count:
            return None
        ahead, self._next = self._next, None
        self._current = ahead if ahead and ahead.due == due else self._submit(due)
        group = self._current.group.result()
        if number + 1 < count:
            self._next = self._submit((epoch, number + 1))
        elif not is_last_epoch:
            self._next = self._submit((epoch + 1, 0))
        return group

    def close(self) -> None:
        """Frees the rows and stops the prefetch. A later load reads again."""
        self._next = self._current = None
        self._free = []
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _submit(self, due: tuple[int, int]) -> _Reading:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "batches")
        buffer = self._free.pop() if self._free else empty_buffer(self._shuffle, self._chunks)
        group = self._pool.submit(read_group, self._shuffle, self._plan(due[0])[due[1]], *due, buffer)
        return _Reading(due, group, buffer)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, plan_groups(self._shuffle, self._chunks, epoch))
        return self._planned[1]
