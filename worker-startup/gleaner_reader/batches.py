"""Shuffled batches of rows for training: mixed over the whole run in bounded memory, the same for the same seed.

The run is cut into chunks of neighbouring rows. Each epoch puts the chunks into a new order and reads them in groups.
The rows of a group come from everywhere in the run; they are shuffled and returned. So three numbers are the state of
an iteration: epoch, group and row. An iteration that starts from a state returns exactly the batches that follow it.
"""

import hashlib
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from .convert import STORED, Rows, check_kind, finish
from .shuffle import Filter, Group, Shuffle, cut, plan_groups, read_group
from .source import RowSource

_BUFFER_BYTES = 1 << 29
_CHUNK_BYTES = 1 << 20
_CHUNKS_PER_GROUP = 64  # the minimum, for shards that can be read row by row


class Batches:
    """An iterator over arrays [batch_rows, d_model].

    batch_rows: rows in a batch. seed: decides the order. epochs: passes over the run; None for endless passes.
    buffer_rows: rows that are mixed with each other (default: 512 MiB of rows). Memory holds twice as many, because the
    next group is prefetched. A pkl.gz shard is read whole.
    drop_last: leave out the last rows of an epoch if they fill no batch.
    exclude_ids, exclude_positions: leave out rows of these token ids, and of these positions in their sample.
    max_norm_multiple: leave out rows whose L2 norm is more than this many times the median norm of their group.
    as_: numpy, torch or jax. dtype: float32, float16 or bfloat16; None for the stored type, with int8 as float32.
    state: a result of state(); the iteration resumes there. Raises ValueError for the state of another run or options.
    """

    def __init__(
        self,
        run: RowSource,
        layer: int,
        site: str,
        *,
        batch_rows: int = 4096,
        seed: int = 0,
        epochs: int | None = 1,
        buffer_rows: int | None = None,
        drop_last: bool = True,
        exclude_ids: Collection[int] = (),
        exclude_positions: Collection[int] = (),
        max_norm_multiple: float | None = None,
        as_: str = "numpy",
        dtype: str | None = None,
        state: dict | None = None,
    ):
        check_kind(as_, dtype)
        row_bytes = max(run.d_model, 1) * STORED[run.dtype].itemsize
        buffer_rows = buffer_rows or max(_BUFFER_BYTES // row_bytes, batch_rows)
        if batch_rows < 1 or buffer_rows < batch_rows or (epochs is not None and epochs < 0):
            raise ValueError(
                f"batch_rows is {batch_rows}, buffer_rows {buffer_rows}, epochs {epochs}; a batch needs rows, "
                "and a buffer holds at least one batch"
            )
        chosen = Filter(frozenset(exclude_ids), frozenset(exclude_positions), max_norm_multiple)
        self._shuffle = Shuffle(run, site, layer, seed, buffer_rows, chosen)
        self._chunks = cut(run, max(1, min(_CHUNK_BYTES // row_bytes, buffer_rows // _CHUNKS_PER_GROUP)))
        self._batch_rows, self._epochs, self._drop_last = batch_rows, epochs, drop_last
        self._as, self._dtype = as_, dtype
        self._pool = ThreadPoolExecutor(1, "batches")
        self._next: tuple[tuple[int, int], Future] | None = None
        self._planned: tuple[int, list[np.ndarray]] | None = None
        self._epoch, self._group, self._row = self._parse(state) if state else (0, 0, 0)
        self._current: Group | None = None
        self._given_in_epoch = self._group > 0 or self._row > 0

    def __iter__(self) -> "Batches":
        return self

    def __next__(self):
        while self._epochs is None or self._epoch < self._epochs:
            parts, missing = [], self._batch_rows
            while missing and (group := self._load()):
                chosen = group.order[self._row : self._row + missing]
                parts.append(group.rows.take(chosen))
                missing -= len(chosen)
                self._row += len(chosen)
                if self._row >= len(group.order):
                    self._group, self._row, self._current = self._group + 1, 0, None
            if parts and missing < self._batch_rows and (not missing or not self._drop_last):
                self._given_in_epoch = True
                if missing:
                    self._end_epoch()
                return finish(_join(parts), self._as, self._dtype)
            self._end_epoch()
        self.close()
        raise StopIteration

    def state(self) -> dict:
        """The state before the next batch, as plain values for JSON."""
        return {"epoch": self._epoch, "group": self._group, "row": self._row, "of": self._settings()}

    def close(self) -> None:
        """Stops the prefetch."""
        self._next = self._current = None
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_epoch(self) -> None:
        run = self._shuffle.run
        if not self._given_in_epoch:
            raise ValueError(
                f"no batch of {self._batch_rows} rows can be made of {run.url}: it has {run.num_rows} rows, before any "
                "filter; ask for smaller batches, or drop_last=False"
            )
        self._epoch, self._group, self._row = self._epoch + 1, 0, 0
        self._current, self._given_in_epoch = None, False

    def _load(self) -> Group | None:
        """Loads the current group and prefetches the next group. Returns None at the end of the epoch."""
        groups = self._plan(self._epoch)
        if self._group >= len(groups):
            return None
        if self._current is None:
            due = (self._epoch, self._group)
            ahead, self._next = self._next, None
            future = ahead[1] if ahead and ahead[0] == due else self._submit(*due)
            self._current = future.result()
            if self._group + 1 < len(groups):
                self._next = ((self._epoch, self._group + 1), self._submit(self._epoch, self._group + 1))
            elif self._epochs is None or self._epoch + 1 < self._epochs:
                self._next = ((self._epoch + 1, 0), self._submit(self._epoch + 1, 0))
        return self._current

    def _submit(self, epoch: int, number: int) -> Future:
        return self._pool.submit(read_group, self._shuffle, self._plan(epoch)[number], epoch, number)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, plan_groups(self._shuffle, self._chunks, epoch))
        return self._planned[1]

    def _settings(self) -> dict:
        shuffle, chosen = self._shuffle, self._shuffle.filter
        shards = "\n".join(f"{s.url.removeprefix(shuffle.run.url)} {s.size_bytes}" for s in shuffle.run.shards)
        return {
            "layer": shuffle.layer,
            "site": shuffle.site,
            "seed": shuffle.seed,
            "batch_rows": self._batch_rows,
            "buffer_rows": shuffle.buffer_rows,
            "drop_last": self._drop_last,
            "exclude_ids": sorted(chosen.exclude_ids),
            "exclude_positions": sorted(chosen.exclude_positions),
            "max_norm_multiple": chosen.max_norm_multiple,
            "shards": hashlib.sha256(shards.encode()).hexdigest()[:16],
        }

    def _parse(self, state: dict) -> tuple[int, ...]:
        """Raises ValueError for a state of another run or other options."""
        mine, theirs = self._settings(), state.get("of")
        place: tuple[Any, ...] = tuple(state.get(key) for key in ("epoch", "group", "row"))
        if not isinstance(theirs, dict) or not all(type(value) is int and value >= 0 for value in place):
            raise ValueError("Failed to resume: the value is not a state of batches; pass a result of state()")
        differing = [f"{key} was {theirs.get(key)}, now {mine[key]}" for key in mine if theirs.get(key) != mine[key]]
        if differing:
            raise ValueError(
                f"Failed to resume these batches: {'; '.join(differing)}; use the options of the first iteration"
            )
        return place


def _join(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    scales = [part.scale for part in parts if part.scale is not None]
    scale = np.concatenate(scales) if scales else None
    return Rows(np.concatenate([part.stored for part in parts]), scale)
