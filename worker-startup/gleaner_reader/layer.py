"""One layer of a whole run as one array [rows, d_model]: shard by shard, or row by row."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .convert import Rows, check_kind, finish
from .files import PARALLEL
from .source import RowSource

# One request reads rows that lie closer than this.
_GAP_BYTES = 1 << 16


class Layer:
    """`for array in layer`: the rows of each shard in order, reading one shard ahead. `layer[rows]`: any rows."""

    def __init__(self, run: RowSource, layer: int, site: str, as_: str, dtype: str | None, verify: bool):
        check_kind(as_, dtype)
        self._run, self._layer, self._site = run, layer, site
        self._as, self._dtype, self._verify = as_, dtype, verify
        self._verified: set[int] = set()  # shards, by their number

    def __repr__(self) -> str:
        return f"<Layer {self._site}.{self._layer} of {self._run.url}: {self.shape[0]:,} rows of {self.shape[1]}>"

    @property
    def shape(self) -> tuple[int, int]:
        return self._run.num_rows, self._run.d_model

    def __len__(self) -> int:
        return self._run.num_rows

    def __iter__(self) -> Iterator:
        with ThreadPoolExecutor(1, "layer") as pool:
            waiting = [pool.submit(self._read, number) for number in range(min(1, len(self._run.shards)))]
            for number in range(len(self._run.shards)):
                rows = waiting.pop().result()
                if number + 1 < len(self._run.shards):
                    waiting.append(pool.submit(self._read, number + 1))
                yield finish(rows.stored, rows.scale, self._as, self._dtype)

    def __getitem__(self, key: int | slice | np.ndarray | list[int]):
        """A row [d_model] for a number, rows [n, d_model] for a slice or numbers, in the order of the request."""
        if isinstance(key, slice):
            numbers = np.arange(*key.indices(len(self)))
        else:
            numbers = np.atleast_1d(np.asarray(key))
        if numbers.ndim != 1 or (len(numbers) and not np.issubdtype(numbers.dtype, np.integer)):
            raise TypeError(f"rows are chosen by a number, a slice or numbers, not by {type(key).__name__}")
        numbers = numbers.astype(np.int64)
        wrong = (numbers < -len(self)) | (numbers >= len(self))
        if wrong.any():
            raise IndexError(f"there is no row {numbers[wrong][0]}; there are {len(self)}")
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        if self._verify:
            self._verify_shards_of(numbers)
        rows = read_rows(self._run, self._site, self._layer, numbers)
        values = finish(rows.stored, rows.scale, self._as, self._dtype)
        return values[0] if not isinstance(key, slice) and np.ndim(key) == 0 else values

    def _verify_shards_of(self, numbers: np.ndarray) -> None:
        """Verifies the layer in each shard that holds one of the rows, once."""
        for number in np.unique(_shards_of(self._run, numbers)).tolist():
            if number not in self._verified:
                self._run.shards[number].rows(self._site, self._layer, 0, 0, verify=True)
                self._verified.add(number)

    def _read(self, number: int) -> Rows:
        shard = self._run.shards[number]
        rows = shard.rows(self._site, self._layer, 0, shard.num_rows, self._verify)
        shard.release()
        return rows


def read_rows(run: RowSource, site: str, layer: int, numbers: np.ndarray) -> Rows:
    """Any rows of the run (int64 [n]), by as few requests as their places allow."""
    order = np.argsort(numbers, kind="stable")
    ranges = _ranges(run, numbers[order])
    stored, scale = None, None

    def read(number: int, begin: int, end: int) -> Rows:
        return run.shards[number].rows(site, layer, begin, end)

    with ThreadPoolExecutor(PARALLEL, "rows") as pool:
        parts = pool.map(lambda of: read(*of[:3]), ranges)
        for (number, begin, _, first, last), rows in zip(ranges, parts, strict=True):
            if stored is None:
                stored = np.empty((len(numbers), rows.stored.shape[1]), rows.stored.dtype)
                scale = None if rows.scale is None else np.empty(len(numbers), np.float32)
            places = order[first:last]
            local = numbers[places] - run.row_offsets[number] - begin
            stored[places] = rows.stored[local]
            if scale is not None and rows.scale is not None:
                scale[places] = rows.scale[local]
    if stored is None:
        empty = run.shards[0].rows(site, layer, 0, 0)
        return empty
    return Rows(stored, scale)


def _ranges(run: RowSource, numbers: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """numbers: ascending. One (shard, its row begin, end; first and last of the numbers) for each request."""
    ranges: list[tuple[int, int, int, int, int]] = []
    shards = _shards_of(run, numbers)
    row_bytes = max(run.d_model, 1) * 2
    for place, (shard, number) in enumerate(zip(shards.tolist(), numbers.tolist(), strict=True)):
        row = number - int(run.row_offsets[shard])
        gap = max(_GAP_BYTES // row_bytes, run.shards[shard].block_rows)
        if ranges and ranges[-1][0] == shard and row < ranges[-1][2] + gap:
            _, begin, end, first, _ = ranges[-1]
            ranges[-1] = (shard, begin, max(end, row + 1), first, place + 1)
        else:
            ranges.append((shard, row, row + 1, place, place + 1))
    return ranges


def _shards_of(run: RowSource, numbers: np.ndarray) -> np.ndarray:
    return np.searchsorted(run.row_offsets, numbers, "right") - 1
