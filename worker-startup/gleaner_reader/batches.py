"""Shuffled batches of rows, for training: mixed over the whole run in bounded memory, the same from the same seed.

The run is cut into chunks of neighbouring rows. Each epoch puts them in an order of its own and reads them in groups;
the rows of a group, come from everywhere in the run, are shuffled and given out. So where an iteration stands is said by
three numbers, and going on from them gives exactly the batches that would have come.
"""

import hashlib
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .files import PARALLEL
from .shard import Rows
from .values import STORED, check_kind, finish, to_float32

if TYPE_CHECKING:
    from .run import Run

_BUFFER_BYTES = 1 << 29
_CHUNK_BYTES = 1 << 20
_CHUNKS_PER_GROUP = 64  # at least, where a run is stored so that rows can be read one by one
_NORM_ROWS = 8192  # whose norms are computed at once


@dataclass(frozen=True)
class Filter:
    """Which rows are left out. Of what is not known of a row, nothing can be asked: then ValueError."""

    exclude_ids: frozenset[int] = frozenset()
    exclude_positions: frozenset[int] = frozenset()
    max_norm_multiple: float | None = None


@dataclass(frozen=True)
class _Group:
    """Rows that are in memory together, and the order in which they are given out."""

    number: int
    rows: Rows
    order: np.ndarray  # int64 [rows that no filter left out]


class Batches:
    """An iterator over [batch_rows, d_model].

    batch_rows: rows in a batch. seed: what decides the order. epochs: how often the run is gone through; None: forever.
    buffer_rows: rows that are mixed with each other (default: 512 MiB of them); twice as many are in memory, as the next
    are read meanwhile. A pkl.gz shard is read as a whole. drop_last: leave out the rest of an epoch that fills no batch.
    exclude_ids, exclude_positions: leave out rows of these token ids, and of these positions in their sample.
    max_norm_multiple: leave out rows whose L2 norm is more than this many medians of those they are mixed with.
    state: what state() gave; goes on from there, and needs the same run and options.
    """

    def __init__(
        self,
        run: "Run",
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
        self._run, self._layer, self._site = run, layer, site
        self._batch_rows, self._seed, self._epochs, self._drop_last = batch_rows, seed, epochs, drop_last
        self._filter = Filter(frozenset(exclude_ids), frozenset(exclude_positions), max_norm_multiple)
        self._as, self._dtype = as_, dtype
        self._buffer_rows = buffer_rows
        self._chunk_rows = max(1, min(_CHUNK_BYTES // row_bytes, buffer_rows // _CHUNKS_PER_GROUP))
        self._chunks = _cut(run, self._chunk_rows)
        self._pool = ThreadPoolExecutor(1, "batches")
        self._next: tuple[tuple[int, int], Future] | None = None
        self._plan_of: tuple[int, list[np.ndarray]] | None = None
        self._epoch, self._group, self._row = self._parse(state) if state else (0, 0, 0)
        self._current: _Group | None = None
        self._given_in_epoch = self._group > 0 or self._row > 0

    def __iter__(self) -> "Batches":
        return self

    def __next__(self):
        while self._epochs is None or self._epoch < self._epochs:
            parts, missing = [], self._batch_rows
            while missing and (group := self._load()):
                chosen = group.order[self._row : self._row + missing]
                parts.append(_take(group.rows, chosen))
                missing -= len(chosen)
                self._row += len(chosen)
                if self._row >= len(group.order):
                    self._group, self._row, self._current = self._group + 1, 0, None
            if parts and missing < self._batch_rows and (not missing or not self._drop_last):
                self._given_in_epoch = True
                if missing:
                    self._end_epoch()
                rows = _join(parts)
                return finish(rows.stored, rows.scale, self._as, self._dtype)
            self._end_epoch()
        self.close()
        raise StopIteration

    def state(self) -> dict:
        """Where the next batch begins, as plain values for JSON."""
        return {"epoch": self._epoch, "group": self._group, "row": self._row, "of": self._settings()}

    def close(self) -> None:
        """Stops reading ahead."""
        self._next = self._current = None
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_epoch(self) -> None:
        if not self._given_in_epoch:
            raise ValueError(
                f"no batch of {self._batch_rows} rows can be made of {self._run.url}: it has {self._run.num_rows} rows, "
                "before any filter; ask for smaller batches, or drop_last=False"
            )
        self._epoch, self._group, self._row = self._epoch + 1, 0, 0
        self._current, self._given_in_epoch = None, False

    def _load(self) -> _Group | None:
        """The group that is due, in memory; None at the end of the epoch. Starts reading the one after it."""
        groups = self._groups(self._epoch)
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
        return self._pool.submit(self._read_group, epoch, number, self._groups(epoch)[number])

    def _groups(self, epoch: int) -> list[np.ndarray]:
        """Of each group the chunks, [n, 3]: all of them together are the run, in the order of this epoch."""
        if self._plan_of is None or self._plan_of[0] != epoch:
            chunks = self._chunks[_order(len(self._chunks), self._seed, epoch)]
            ends = np.cumsum(chunks[:, 2] - chunks[:, 1])
            cuts, done = [], 0
            while done < (ends[-1] if len(ends) else 0):
                cuts.append(int(np.searchsorted(ends, min(done + self._buffer_rows, ends[-1]))) + 1)
                done = ends[cuts[-1] - 1]
            self._plan_of = (epoch, np.split(chunks, cuts[:-1]) if cuts else [])
        return self._plan_of[1]

    def _read_group(self, epoch: int, number: int, chunks: np.ndarray) -> _Group:
        run, filter_ = self._run, self._filter
        rows = _read_chunks(run, self._site, self._layer, chunks)
        keep = np.ones(len(rows.stored), bool)
        if filter_.exclude_ids or filter_.exclude_positions:
            keep = _keep(run, filter_, chunks)
        order = _order(len(keep), self._seed, epoch, number + 1)
        if filter_.max_norm_multiple is not None and keep.any():
            norms = _norms(rows)
            keep &= norms <= filter_.max_norm_multiple * np.median(norms[keep])
        return _Group(number, rows, order[keep[order]])

    def _settings(self) -> dict:
        shards = "\n".join(f"{shard.url.rpartition('/')[2]} {shard.size_bytes}" for shard in self._run.shards)
        return {
            "layer": self._layer,
            "site": self._site,
            "seed": self._seed,
            "batch_rows": self._batch_rows,
            "buffer_rows": self._buffer_rows,
            "drop_last": self._drop_last,
            "exclude_ids": sorted(self._filter.exclude_ids),
            "exclude_positions": sorted(self._filter.exclude_positions),
            "max_norm_multiple": self._filter.max_norm_multiple,
            "shards": hashlib.sha256(shards.encode()).hexdigest()[:16],
        }

    def _parse(self, state: dict) -> tuple[int, int, int]:
        """Raises ValueError when it is of another iteration than this one."""
        mine, theirs = self._settings(), state.get("of")
        place = tuple(state.get(key) for key in ("epoch", "group", "row"))
        if not isinstance(theirs, dict) or not all(type(value) is int and value >= 0 for value in place):
            raise ValueError("Failed to go on: this is no state of batches")
        differing = [f"{key} was {theirs.get(key)}, now {mine[key]}" for key in mine if theirs.get(key) != mine[key]]
        if differing:
            raise ValueError(f"Failed to go on with these batches: {'; '.join(differing)}")
        return place


def _cut(run: "Run", chunk_rows: int) -> np.ndarray:
    """int64 [chunks, 3]: shard, and which of its rows."""
    chunks = []
    for number, rows in enumerate(np.diff(run.row_offsets).tolist()):
        step = max(chunk_rows, run.shards[number].block_rows)
        begins = np.arange(0, rows, step)
        chunks.append(np.stack([np.full_like(begins, number), begins, np.minimum(begins + step, rows)], axis=1))
    return np.concatenate(chunks).astype(np.int64)


def _order(count: int, *seed: int) -> np.ndarray:
    """A permutation that is the same with every version of numpy, which shuffle() is not."""
    random = np.random.Philox(np.random.SeedSequence(seed)).random_raw(count)
    return np.argsort(random, kind="stable")


def _read_chunks(run: "Run", site: str, layer: int, chunks: np.ndarray) -> Rows:
    """The rows of the chunks, one after the other; each is put where it belongs as it comes."""
    ends = np.cumsum(chunks[:, 2] - chunks[:, 1])
    stored = np.empty((int(ends[-1]), run.d_model), STORED[run.dtype])
    scale = np.empty(len(stored), np.float32) if run.dtype == "int8" else None

    def read(place: int) -> None:
        number, begin, end = chunks[place].tolist()
        shard, last = run.shards[number], int(ends[place])
        rows = shard.rows(site, layer, begin, end)
        stored[last - (end - begin) : last] = rows.stored
        if scale is not None:
            scale[last - (end - begin) : last] = rows.scale
        shard.release()

    with ThreadPoolExecutor(PARALLEL, "chunks") as pool:
        list(pool.map(read, range(len(chunks))))
    return Rows(stored, scale)


def _keep(run: "Run", filter_: Filter, chunks: np.ndarray) -> np.ndarray:
    """bool [rows of the chunks]: those that neither their token nor their position leaves out."""
    sizes = chunks[:, 2] - chunks[:, 1]
    keep = np.ones(int(sizes.sum()), bool)
    begins = np.cumsum(sizes) - sizes
    for number in np.unique(chunks[:, 0]):
        kept_rows = _kept_rows(run, filter_, int(number))
        for place in np.flatnonzero(chunks[:, 0] == number):
            keep[begins[place] : begins[place] + sizes[place]] = kept_rows[chunks[place, 1] : chunks[place, 2]]
    return keep


def _kept_rows(run: "Run", filter_: Filter, number: int) -> np.ndarray:
    """bool [rows of the shard]."""
    shard = run.shards[number]
    index = run.index(shard)
    keep = np.ones(shard.num_rows, bool)
    if filter_.exclude_positions:
        if index.positions is None:
            raise ValueError(f"exclude_positions needs rows that are of one token each; those of {shard.url} are not")
        keep &= ~np.isin(index.positions, list(filter_.exclude_positions))
    if filter_.exclude_ids:
        if index.row_tokens is None:
            raise ValueError(f"exclude_ids needs the token id of each row; {shard.url} does not have them")
        keep &= ~np.isin(index.row_tokens, list(filter_.exclude_ids))
    return keep


def _norms(rows: Rows) -> np.ndarray:
    """fp32 [n]: the L2 norm of each row."""
    norms = np.empty(len(rows.stored), np.float32)
    for begin in range(0, len(norms), _NORM_ROWS):
        part = slice(begin, begin + _NORM_ROWS)
        values = to_float32(rows.stored[part], None if rows.scale is None else rows.scale[part])
        norms[part] = np.sqrt(np.einsum("nd,nd->n", values, values))
    return norms


def _take(rows: Rows, chosen: np.ndarray) -> Rows:
    return Rows(rows.stored[chosen], None if rows.scale is None else rows.scale[chosen])


def _join(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    scale = None if parts[0].scale is None else np.concatenate([part.scale for part in parts])
    return Rows(np.concatenate([part.stored for part in parts]), scale)
