"""One layer of a whole run as one array [rows, width]: shard by shard, or row by row."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..format.convert import STORED, Rows, check_kind, empty_rows, finish
from ..format.files import PARALLEL
from ..shuffle.source import RowSource
from ..shuffle.workers import current_worker

# One request reads rows with smaller gaps than this.
_GAP_BYTES = 1 << 16


class Layer:
    """One layer of a run; `Run.layer` makes it. A loop over it prefetches the next shard.

    >>> layer = run.layer(12)
    >>> layer.shape == (run.num_rows, 8)
    True
    >>> sum(len(array) for array in layer) == len(layer)  # one array [rows, width] for each shard
    True
    >>> layer[100:110].shape, layer[-1].shape
    ((10, 8), (8,))
    """

    def __init__(self, run: RowSource, layer: int, site: str, as_: str, dtype: str | None, verify: bool):
        check_kind(as_, dtype)
        self._run, self._layer, self._site = run, layer, site
        self._as, self._dtype, self._verify = as_, dtype, verify
        self._verified: set[int] = set()  # shards, by their number

    def __repr__(self) -> str:
        return f"<Layer {self._site}.{self._layer} of {self._run.url}: {self.shape[0]:,} rows of {self.shape[1]}>"

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width) of the whole run."""
        return self._run.num_rows, self._run.widths[self._site]

    def __len__(self) -> int:
        return self._run.num_rows

    def __iter__(self) -> Iterator:
        """Raises RuntimeError in a fork of the process that began: the thread that prefetches is not in the fork.

        Raises RuntimeError in several workers of a DataLoader, because each worker would return every row.
        """
        process, worker = os.getpid(), current_worker()
        if worker is not None and worker.of > 1:
            raise RuntimeError(
                f"each of the {worker.of} workers of this DataLoader would return every row of {self!r}; iterate over "
                "run.batches(…), which the workers divide, or ask for rows by their numbers: layer[begin:end]"
            )
        with ThreadPoolExecutor(1, "layer") as pool:
            waiting = [pool.submit(self._read, number) for number in range(min(1, len(self._run.shards)))]
            for number in range(len(self._run.shards)):
                rows = waiting.pop().result()
                if number + 1 < len(self._run.shards):
                    waiting.append(pool.submit(self._read, number + 1))
                yield finish(rows, self._as, self._dtype)
                if os.getpid() != process:
                    raise RuntimeError(
                        f"process {process} began this iteration over {self!r}, and process {os.getpid()} is a fork of "
                        "it; begin the iteration in the process that goes on"
                    )

    def __getitem__(self, key: int | slice | np.ndarray | list[int]):
        """A row [width] for a number, rows [n, width] for a slice or numbers, in the order of the request.

        A pkl.gz shard is read whole by each request, so ask for many of its rows at once.
        Raises IndexError for a row that the run lacks, and TypeError for another key.
        """
        numbers = row_numbers(key, len(self))
        if self._verify:
            self._verify_shards_of(numbers)
        rows = read_rows(self._run, self._site, self._layer, numbers)
        values = finish(rows, self._as, self._dtype)
        return values[0] if not isinstance(key, slice) and np.ndim(key) == 0 else values

    def _verify_shards_of(self, numbers: np.ndarray) -> None:
        """Verifies the layer in each shard that holds one of the rows, once."""
        for number in np.unique(_shards_of(self._run, numbers)).tolist():
            if number not in self._verified:
                self._run.shards[number].rows(self._site, self._layer, 0, 0, verify=True)
                self._run.shards[number].release_rows()
                self._verified.add(number)

    def _read(self, number: int) -> Rows:
        shard = self._run.shards[number]
        rows = shard.rows(self._site, self._layer, 0, shard.num_rows, self._verify)
        shard.release_rows()
        return rows


def row_numbers(key: int | slice | np.ndarray | Sequence[int], count: int) -> np.ndarray:
    """int64 [n]: the rows of `count` that the key chooses; negative ones count from the end. Raises as `Layer[key]`."""
    numbers = np.arange(*key.indices(count)) if isinstance(key, slice) else np.atleast_1d(np.asarray(key))
    if numbers.ndim != 1 or (len(numbers) and not np.issubdtype(numbers.dtype, np.integer)):
        raise TypeError(f"rows are chosen by a number, a slice or numbers, not by {type(key).__name__}")
    numbers = numbers.astype(np.int64)
    wrong = (numbers < -count) | (numbers >= count)
    if wrong.any():
        raise IndexError(f"there is no row {numbers[wrong][0]}; there are {count}")
    return np.where(numbers < 0, numbers + count, numbers)


def read_rows(run: RowSource, site: str, layer: int, numbers: np.ndarray) -> Rows:
    """The rows of the run with these numbers (int64 [n], in any order). One request reads all neighbouring rows."""
    order = np.argsort(numbers, kind="stable")
    result = empty_rows((len(numbers), run.widths[site]), run.dtypes[site])

    def read(number: int, begin: int, end: int, first: int, last: int) -> None:
        places = order[first:last]
        rows = run.shards[number].rows(site, layer, begin, end)
        run.shards[number].release_rows()
        result.put(places, rows.take(numbers[places] - run.row_offsets[number] - begin))

    with ThreadPoolExecutor(PARALLEL, "rows") as pool:
        list(pool.map(lambda of: read(*of), _ranges(run, site, numbers[order])))
    return result


def _ranges(run: RowSource, site: str, numbers: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """(shard, begin, end, first, last) of each request: rows begin..end of the shard hold numbers[first:last].

    numbers: ascending.
    """
    ranges: list[tuple[int, int, int, int, int]] = []
    shards = _shards_of(run, numbers)
    row_bytes = max(run.widths[site], 1) * STORED[run.dtypes[site]].itemsize
    for place, (shard, number) in enumerate(zip(shards.tolist(), numbers.tolist(), strict=True)):
        row = number - int(run.row_offsets[shard])
        gap = max(_GAP_BYTES // row_bytes, run.shards[shard].block_rows(site))
        if ranges and ranges[-1][0] == shard and row < ranges[-1][2] + gap:
            _, begin, end, first, _ = ranges[-1]
            ranges[-1] = (shard, begin, max(end, row + 1), first, place + 1)
        else:
            ranges.append((shard, row, row + 1, place, place + 1))
    return ranges


def _shards_of(run: RowSource, numbers: np.ndarray) -> np.ndarray:
    return np.searchsorted(run.row_offsets, numbers, "right") - 1
