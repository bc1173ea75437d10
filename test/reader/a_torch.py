"""A stand-in for torch.utils.data, as strict as torch: `install()` makes its modules, `loop` loops over a DataLoader.

A worker is a forked process. It gets the dataset as it was in its parent, and calls iter() once for each loop.
"""

import os
import pickle
import select
import sys
import time
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

LIMIT_S = 120
T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    def __getitem__(self, index):
        raise NotImplementedError


class IterableDataset(Dataset[T], Iterable[T]):
    pass


@dataclass(frozen=True)
class WorkerInfo:
    id: int
    num_workers: int
    seed: int
    dataset: object


_info = None


def get_worker_info():
    return _info


def install():
    names = ("torch", "torch.utils", "torch.utils.data")
    torch, utils, data = (sys.modules.setdefault(name, types.ModuleType(name)) for name in names)
    torch.utils, utils.data = utils, data
    data.Dataset, data.IterableDataset, data.get_worker_info = Dataset, IterableDataset, get_worker_info


def loop(dataset, workers, loops=1, take=None):
    """The batches of each of `loops` loops with workers that stay. take: batches of each worker in the first loop."""
    if not isinstance(dataset, IterableDataset):
        raise TypeError(f"object of type {type(dataset).__name__!r} has no len()")

    def work(number):
        global _info
        _info = WorkerInfo(number, workers, number, dataset)
        found = []
        for this in range(loops):
            iterator, batches = iter(dataset), []
            while this > 0 or take is None or len(batches) < take:
                try:
                    batches.append(next(iterator))
                except StopIteration:
                    break
            found.append(batches)
        return found

    each = in_processes([lambda number=number: work(number) for number in range(workers)])
    return [[batch for found in each for batch in found[this]] for this in range(loops)]


def in_processes(calls):
    """The results of calls in forked processes that run side by side. Raises the error of a call, and after LIMIT_S."""
    ends = {}
    for number, call in enumerate(calls):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                answer = (True, call())
            except BaseException as error:
                answer = (False, error)
            with os.fdopen(write_end, "wb") as file:
                file.write(pickle.dumps(answer))
            os._exit(0)
        os.close(write_end)
        ends[read_end] = (number, pid, bytearray())
    results, until = {}, time.monotonic() + LIMIT_S
    while ends:
        ready, _, _ = select.select(list(ends), [], [], max(0.0, until - time.monotonic()))
        if not ready:
            for _, pid, _ in ends.values():
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            raise TimeoutError(f"{len(ends)} processes still run after {LIMIT_S} s")
        for end in ready:
            number, pid, data = ends[end]
            if piece := os.read(end, 1 << 20):
                data += piece
                continue
            os.close(end)
            os.waitpid(pid, 0)
            results[number] = pickle.loads(bytes(data))
            del ends[end]
    for succeeded, answer in results.values():
        if not succeeded:
            raise answer
    return [results[number][1] for number in range(len(calls))]
