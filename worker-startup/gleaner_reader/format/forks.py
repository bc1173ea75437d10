"""Locks and cached values for code that may be forked: the thread that would unlock a lock is not in the child."""

import os
import sys
import threading

if sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        """functools.cached_property without the lock of Python 3.11 and earlier. Threads may compute a value twice."""

        def __init__(self, compute):
            self._compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


__all__ = ["ProcessLock", "cached_property"]


class ProcessLock:
    """A lock between the threads of one process. Each process has its own, and a pickled lock is a new lock."""

    def __init__(self):
        self._locks: dict[int, threading.Lock] = {}

    def __enter__(self) -> None:
        # Two threads get the same lock, because setdefault is atomic.
        self._locks.setdefault(os.getpid(), threading.Lock()).acquire()

    def __exit__(self, *_: object) -> None:
        self._locks[os.getpid()].release()

    def __reduce__(self):
        return ProcessLock, ()
