"""The processes that share one iteration: the workers of torch's DataLoader, and shares that a caller names."""

import sys
import types
from collections.abc import MutableSequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_COUNTERS = 1024  # workers with their own counter; more workers share counters, which changes only the order of rows


class Worker(NamedTuple):
    """A worker of torch's DataLoader: number `number` of `of`."""

    number: int
    of: int


@dataclass(frozen=True)
class Share:
    """Share number `number`, from 0, of `of` shares that hold each row of a run once."""

    number: int = 0
    of: int = 1

    def of_worker(self, worker: Worker | None) -> "Share":
        """The part of this share for one worker."""
        if worker is None:
            return self
        return Share(self.number * worker.of + worker.number, self.of * worker.of)


def parse_share(share: tuple[int, int] | None) -> Share:
    """Raises ValueError unless the share is (number, of) with 0 <= number < of."""
    if share is None:
        return Share()
    numbers = tuple(share)
    if len(numbers) != 2 or any(type(number) is not int for number in numbers) or not 0 <= numbers[0] < numbers[1]:
        raise ValueError(f"share is {share!r}; pass (number, of), such as (0, 2) and (1, 2) in two processes")
    return Share(*numbers)


def current_worker() -> Worker | None:
    """The worker that this process is; None outside of torch's DataLoader. Does not import torch."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data else None
    return Worker(info.id, info.num_workers) if info else None


def with_iterable_dataset(kind: type) -> type:
    """The class, also as torch's IterableDataset where torch is imported: DataLoader takes no other iterable."""
    data = sys.modules.get("torch.utils.data")
    return _combine(kind, data.IterableDataset) if data else kind


@lru_cache(maxsize=8)
def _combine(kind: type, dataset: type) -> type:
    return types.new_class(kind.__name__, (kind, dataset))


def new_counters() -> MutableSequence[int]:
    """Zeros that every worker process sees, where torch is imported; otherwise zeros of this process."""
    if "torch.utils.data" not in sys.modules:
        return [0] * _COUNTERS
    from multiprocessing.sharedctypes import RawArray

    return RawArray("q", _COUNTERS)


def can_pickle(counters: MutableSequence[int]) -> bool:
    """Whether pickle takes the counters: shared ones only while a process of multiprocessing starts."""
    from multiprocessing.context import get_spawning_popen

    return isinstance(counters, list) or get_spawning_popen() is not None
