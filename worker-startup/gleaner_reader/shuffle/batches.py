"""Shuffled batches of rows for training: mixed over the whole run in bounded memory, the same for the same seed.

The run is cut into chunks of neighbouring rows. Each epoch puts the chunks into a new order and reads them in groups.
The rows of a group come from everywhere in the run; they are shuffled and returned. So three numbers are the place of
an iteration: epoch, group and row. An iteration that starts from a state returns exactly the batches that follow it.
Processes that share an iteration divide the chunks, so that each row comes from one of them.
"""

import hashlib
import math
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..format.convert import STORED, Rows, check_kind, finish
from .groups import Groups
from .shuffle import Filter, Group, Shuffle, first_rows_of
from .source import RowSource
from .workers import can_pickle, current_worker, new_counters, parse_share, with_iterable_dataset

_BUFFER_BYTES = 1 << 29
_PLACE = ("first_epoch", "epoch", "group", "row")


class Batches:
    """Shuffled rows as arrays [batch_rows, width], or [batch_rows, layers, width] of several layers.

    `Run.batches` makes them. Each `for` over the batches is the next epoch; a `for` after a break goes on.

    Args:
        batch_rows: rows in a batch.
        seed: decides the order.
        epochs: passes over the run in one `for`; None for endless passes.
        buffer_rows: rows that are mixed with each other; None for 512 MiB of rows, divided between the workers of a
            DataLoader. Memory holds twice as many, because the next group is prefetched. A pkl.gz shard is read whole.
            In the first epoch of a run with more rows, fewer are mixed at first, so that the first batch comes soon:
            those of some 64 places of the run, and then twice as many each time, up to buffer_rows.
        drop_last: whether to leave out the last rows of an epoch if they fill no batch.
        exclude_ids: leave out the rows of these token ids.
        exclude_positions: leave out the rows at these positions in their sample.
        masked: whether to leave out the rows of tokens that `mask` of the run does not mark.
        max_norm_multiple: leave out rows whose L2 norm is more than this many times the median norm of their group.
        as_: the kind of array: "numpy", "torch" or "jax".
        dtype: "float32", "float16" or "bfloat16"; None for the stored type, with int8 as float32.
        with_index: whether a batch is (rows, ids), with the number of each row as `Run.rows` takes it: int64
            [batch_rows] of numpy for any `as_`.
        share: (number, of) for process `number` of several that divide the rows. A worker of torch's DataLoader takes
            its share by itself.
        state: a result of state(), where the iteration resumes.

    Raises:
        ValueError: options contradict each other, or the state is that of another run or of other options.
        RuntimeError: a process that did not make the batches iterates over them without a share.

    >>> batches = run.batches(12, batch_rows=64, seed=0, exclude_positions=[0])
    >>> next(batches).shape
    (64, 8)
    >>> rest = run.batches(12, batch_rows=64, seed=0, exclude_positions=[0], state=batches.state())
    >>> bool((next(rest) == next(batches)).all())
    True
    """

    def __new__(cls, *_args, as_: str = "numpy", **_options):
        if as_ == "torch":
            check_kind(as_, None)  # imports torch
        return super().__new__(with_iterable_dataset(cls))

    def __init__(
        self,
        run: RowSource,
        layer: int | Sequence[int],
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
        masked: bool = False,
        as_: str = "numpy",
        dtype: str | None = None,
        with_index: bool = False,
        share: tuple[int, int] | None = None,
        state: dict | None = None,
    ):
        check_kind(as_, dtype)
        if batch_rows < 1 or (buffer_rows or batch_rows) < batch_rows or (epochs is not None and epochs < 0):
            raise ValueError(
                f"batch_rows is {batch_rows}, buffer_rows {buffer_rows}, epochs {epochs}; a batch needs rows, "
                "and a buffer holds at least one batch"
            )
        self._asked_buffer_rows, self._has_share, self._share = buffer_rows, share is not None, parse_share(share)
        chosen = Filter(frozenset(exclude_ids), frozenset(exclude_positions), max_norm_multiple, masked)
        layers = layer if isinstance(layer, int) else tuple(layer)
        self._shuffle = Shuffle(run, site, layers, seed, batch_rows, batch_rows, chosen)
        self._asked_first_rows = _first_rows_of(state)
        self._batch_rows, self._epochs, self._drop_last = batch_rows, epochs, drop_last
        self._as, self._dtype, self._with_index = as_, dtype, with_index
        self._counters = new_counters()
        self._enter_process()
        self._first_epoch, self._epoch, self._group, self._row = self._parse(state) if state else (0, 0, 0, 0)
        self._is_resumed = self._given_in_epoch = self._group > 0 or self._row > 0
        self._has_begun = self._has_ended = False
        self._base_epoch = self._first_epoch
        self._count_loop()

    def __repr__(self) -> str:
        shuffle = self._shuffle
        layers = ", ".join(f"{shuffle.site}.{layer}" for layer in shuffle.layers)
        return (
            f"<Batches of {self._batch_rows:,} rows of {layers} of {shuffle.run.url}: "
            f"seed {shuffle.seed}, epoch {self._epoch}>"
        )

    def __len__(self) -> int:
        """Raises TypeError, also for a DataLoader that takes the batches for a list."""
        raise TypeError(
            "batches have no length: a filter may leave out any row; for torch's DataLoader pass as_='torch', or "
            "import torch before you call run.batches(…)"
        )

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> "Batches":
        self._follow_process()
        if self._worker is not None and (self._has_begun or self._has_ended):
            # A DataLoader drops the batches that its workers prefetched for a loop that was left.
            self._begin_loop_of_worker()
        elif self._has_ended:
            self._begin_epochs(self._epoch)
        return self

    def __next__(self):
        rows, ids = self.next_rows()
        values = finish(rows, self._as, self._dtype)
        return (values, ids) if self._with_index else values

    def next_rows(self) -> tuple[Rows, np.ndarray]:
        """The next batch as it is stored, and the numbers of its rows. Raises StopIteration."""
        self._follow_process()
        self._has_begun = True
        while self._epochs is None or self._epoch < self._first_epoch + self._epochs:
            parts, missing = [], self._batch_rows
            while missing and (group := self._load()):
                parts.append(group.take(self._row, self._row + missing))
                missing -= len(parts[-1][1])
                self._row += len(parts[-1][1])
                if self._row >= len(group.order):
                    self._group, self._row = self._group + 1, 0
            if parts and missing < self._batch_rows and (not missing or not self._drop_last):
                self._given_in_epoch = True
                if missing:
                    self._end_epoch()
                return _join(parts)
            if not self._given_in_epoch and self._is_share_without_rows():
                break
            self._end_epoch()
        self._has_ended = True
        self.close()
        raise StopIteration

    def state(self) -> dict:
        """The state before the next batch, as plain values for JSON. Raises ValueError where workers iterate."""
        if self._worker is None and any(self._counters):
            raise ValueError(
                "the workers of a DataLoader have iterated these batches, and only they know their places; to save a "
                "state, iterate over the batches themselves, which prefetch without workers"
            )
        place = (self._first_epoch, self._epoch, self._group, self._row)
        return {**dict(zip(_PLACE, place, strict=True)), "of": self._settings()}

    def close(self) -> None:
        """Frees the rows and stops the prefetch. A later iteration reads them again."""
        self._groups.close()

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self):
        state = {name: value for name, value in self.__dict__.items() if name != "_groups"}
        if not can_pickle(self._counters):
            state["_counters"] = list(self._counters)
        return _restore, (state,)

    def _enter_process(self) -> None:
        """Takes the share of this process, and reads with a thread of this process."""
        self._process, self._worker = os.getpid(), current_worker()
        run, site, workers = self._shuffle.run, self._shuffle.site, self._worker.of if self._worker else 1
        row_bytes = max(math.prod(self._shuffle.row_shape), 1) * STORED[run.dtypes[site]].itemsize
        default = max(_BUFFER_BYTES // workers // row_bytes, self._batch_rows)
        share, buffer_rows = self._share.of_worker(self._worker), self._asked_buffer_rows or default
        first_rows = self._asked_first_rows or first_rows_of(run, site, buffer_rows, self._batch_rows)
        self._shuffle = replace(self._shuffle, share=share, buffer_rows=buffer_rows, first_rows=first_rows)
        self._groups = Groups(self._shuffle)

    def _follow_process(self) -> None:
        """Enters the process that iterates, if another process made these batches.

        Raises RuntimeError where the rows would come twice, and ValueError where a worker cannot resume.
        """
        if os.getpid() == self._process:
            return
        worker = current_worker()
        if worker is None and (not self._has_share or self._has_begun):
            raise RuntimeError(
                f"process {self._process} made these batches, and process {os.getpid()} would return the same rows; "
                "make them in the process that iterates, with share=(number, of) where several processes divide the "
                "rows, or iterate in the workers of torch's DataLoader"
            )
        if worker is not None and self._is_resumed:
            raise ValueError(
                "these batches resume within an epoch, and workers of a DataLoader begin whole epochs; iterate over "
                "the batches themselves, which prefetch without workers, or leave out the state"
            )
        self._enter_process()
        self._has_begun = self._has_ended = False
        if worker is not None:
            self._base_epoch = self._epoch
            self._begin_loop_of_worker()

    def _begin_loop_of_worker(self) -> None:
        """Begins the epochs after those of earlier loops, which other processes with the same number may have run."""
        self._begin_epochs(self._base_epoch + self._count_loop() * (self._epochs or 1))

    def _count_loop(self) -> int:
        """Counts a loop of this worker. Returns the number of its earlier loops."""
        if self._worker is None:
            return 0
        place = self._worker.number % len(self._counters)
        self._counters[place] += 1
        return self._counters[place] - 1

    def _begin_epochs(self, epoch: int) -> None:
        self._first_epoch = self._epoch = epoch
        self._group = self._row = 0
        self._given_in_epoch = self._has_begun = self._has_ended = False

    def _is_share_without_rows(self) -> bool:
        """True for a share without any row. Raises ValueError where a loss would be silent, or the run has no batch."""
        share, run = self._shuffle.share, self._shuffle.run
        if share.of > 1 and not self._drop_last:
            return True
        shared = f" of share {share.number} of {share.of}" if share.of > 1 else ""
        fewer = ", or fewer workers" if share.of > 1 else ""
        raise ValueError(
            f"no batch of {self._batch_rows} rows can be made{shared} of {run.url}: it has {run.num_rows} rows, before "
            f"any filter; ask for smaller batches, or drop_last=False{fewer}"
        )

    def _end_epoch(self) -> None:
        self._epoch, self._group, self._row = self._epoch + 1, 0, 0
        self._given_in_epoch = self._is_resumed = False

    def _load(self) -> Group | None:
        is_last = self._epochs is not None and self._epoch + 1 >= self._first_epoch + self._epochs
        return self._groups.load(self._epoch, self._group, is_last)

    def _settings(self) -> dict:
        shuffle, chosen = self._shuffle, self._shuffle.filter
        shards = "\n".join(f"{s.url.removeprefix(shuffle.run.url)} {s.size_bytes}" for s in shuffle.run.shards)
        return {
            "layer": shuffle.layer if isinstance(shuffle.layer, int) else list(shuffle.layer),
            "site": shuffle.site,
            "seed": shuffle.seed,
            "batch_rows": self._batch_rows,
            "buffer_rows": shuffle.buffer_rows,
            "first_rows": shuffle.first_rows,
            "drop_last": self._drop_last,
            "exclude_ids": sorted(chosen.exclude_ids),
            "exclude_positions": sorted(chosen.exclude_positions),
            "max_norm_multiple": chosen.max_norm_multiple,
            **({"masked": True} if chosen.masked else {}),
            "share": [shuffle.share.number, shuffle.share.of],
            "shards": hashlib.sha256(shards.encode()).hexdigest()[:16],
        }

    def _parse(self, state: dict) -> tuple[int, ...]:
        """Raises ValueError for a state of another run or other options."""
        mine, theirs = self._settings(), state.get("of")
        place: tuple[Any, ...] = tuple(state.get(key) for key in _PLACE)
        if not isinstance(theirs, dict) or not all(type(value) is int and value >= 0 for value in place):
            raise ValueError("Failed to resume: the value is not a state of batches; pass a result of state()")
        theirs = {"first_rows": mine["first_rows"]} | theirs
        differing = [
            f"{key} was {theirs.get(key)}, now {mine.get(key)}"
            for key in {**mine, **theirs}
            if theirs.get(key) != mine.get(key)
        ]
        if differing:
            raise ValueError(
                f"Failed to resume these batches: {'; '.join(differing)}; use the options of the first iteration"
            )
        return place


def _first_rows_of(state: dict | None) -> int | None:
    """The rows of the first group of a saved iteration. Earlier releases did not state them: all groups were equal."""
    of = (state or {}).get("of")
    rows = of.get("first_rows", of.get("buffer_rows")) if isinstance(of, dict) else None
    return rows if type(rows) is int and rows > 0 else None


def _restore(state: dict) -> Batches:
    """Batches from a pickle, in this or another process."""
    batches = Batches.__new__(Batches, as_=state["_as"])
    batches.__dict__.update(state)
    batches._groups = Groups(batches._shuffle)
    return batches


def _join(parts: list[tuple[Rows, np.ndarray]]) -> tuple[Rows, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    scales = [rows.scale for rows, _ in parts if rows.scale is not None]
    stored, scale = np.concatenate([rows.stored for rows, _ in parts]), np.concatenate(scales) if scales else None
    return Rows(stored, scale), np.concatenate([ids for _, ids in parts])
