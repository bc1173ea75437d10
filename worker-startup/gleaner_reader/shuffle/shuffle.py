"""Shuffles a run: cuts chunks of neighbouring rows, and mixes groups of chunks from everywhere in the run."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..format.convert import STORED, Rows, empty_rows
from ..format.files import PARALLEL
from .source import RowSource
from .workers import Share

_CHUNK_BYTES = 1 << 20
_CHUNKS_PER_GROUP = 64  # the minimum, for shards that can be read row by row
_CHUNKS_PER_SHARE = 64  # of a small run, so that shares have almost equal numbers of rows
_NORM_ROWS = 8192  # rows in one computation of norms


@dataclass(frozen=True)
class Filter:
    """The rows to leave out; Batches describes the options."""

    exclude_ids: frozenset[int] = frozenset()
    exclude_positions: frozenset[int] = frozenset()
    max_norm_multiple: float | None = None
    masked: bool = False

    @property
    def is_of_index(self) -> bool:
        """Whether the index of a shard decides about rows."""
        return bool(self.exclude_ids or self.exclude_positions or self.masked)


@dataclass(frozen=True)
class Group:
    """Rows that are in memory together, layer after layer, and the order in which they are returned."""

    rows: Rows  # [layers * n, width]
    ends: np.ndarray  # int64 [chunks]: the row after each chunk
    shifts: np.ndarray  # int64 [chunks]: the number in the run of a row, minus its number here
    order: np.ndarray  # int64 [those of the n rows that no filter left out]
    begins: np.ndarray | None  # int64 [layers]: where each layer begins in the rows; None for one layer

    def take(self, begin: int, end: int) -> tuple[Rows, np.ndarray]:
        """Rows begin..end of the order, copied: [end - begin, width] or [end - begin, layers, width]. Their numbers."""
        places = self.order[begin:end]
        rows = self.rows.take(places if self.begins is None else places[:, None] + self.begins)
        return rows, places + self.shifts[np.searchsorted(self.ends, places, "right")]


@dataclass(frozen=True)
class Shuffle:
    """A run and a layer to shuffle, and the options that decide the order. layer: several for rows [layers, width]."""

    run: RowSource
    site: str
    layer: int | tuple[int, ...]
    seed: int
    buffer_rows: int
    first_rows: int  # of the first group; see `first_rows_of`
    filter: Filter
    share: Share = Share()

    @property
    def layers(self) -> tuple[int, ...]:
        return (self.layer,) if isinstance(self.layer, int) else self.layer

    @property
    def row_shape(self) -> tuple[int, ...]:
        """(width,), or (layers, width) of several layers."""
        width = self.run.widths[self.site]
        return (width,) if isinstance(self.layer, int) else (len(self.layer), width)


def cut(shuffle: Shuffle) -> np.ndarray:
    """int64 [chunks, 3] of the share: the number of a shard, and the begin and end of the chunk's rows in it.

    A share has the same chunks in every epoch. So each row comes once, also if processes are in different epochs.
    """
    run, share = shuffle.run, shuffle.share
    chunk_rows = _chunk_rows(run, shuffle.site, shuffle.buffer_rows)
    if share.of > 1:
        chunk_rows = max(1, min(chunk_rows, run.num_rows // (share.of * _CHUNKS_PER_SHARE)))
    chunks = _cut(run, shuffle.site, chunk_rows)
    if share.of == 1:
        return chunks
    # Four numbers seed no other order of this module.
    return chunks[order_of(len(chunks), shuffle.seed, 0, 0, 1)[share.number :: share.of]]


def first_rows_of(run: RowSource, site: str, buffer_rows: int, batch_rows: int) -> int:
    """Rows of the first group: the buffer, halved as often as chunks and batch allow, because the first batch waits."""
    chunk_rows = max(_chunk_rows(run, site, buffer_rows), run.shards[0].block_rows(site))
    rows, least = buffer_rows, max(batch_rows, _CHUNKS_PER_GROUP * chunk_rows)
    while rows // 2 >= least:
        rows //= 2
    return rows


def _chunk_rows(run: RowSource, site: str, buffer_rows: int) -> int:
    row_bytes = max(run.widths[site], 1) * STORED[run.dtypes[site]].itemsize
    return max(1, min(_CHUNK_BYTES // row_bytes, buffer_rows // _CHUNKS_PER_GROUP))


def _cut(run: RowSource, site: str, chunk_rows: int) -> np.ndarray:
    chunks = []
    for number, rows in enumerate(np.diff(run.row_offsets).tolist()):
        step = max(chunk_rows, run.shards[number].block_rows(site))
        begins = np.arange(0, rows, step)
        chunks.append(np.stack([np.full_like(begins, number), begins, np.minimum(begins + step, rows)], axis=1))
    return np.concatenate(chunks).astype(np.int64)


def plan_groups(shuffle: Shuffle, chunks: np.ndarray, epoch: int) -> list[np.ndarray]:
    """The chunks of each group, [n, 3]. All groups together are the run, in the order of this epoch.

    The groups of the first epoch double until they fill the buffer, unless one group holds all rows.
    """
    chunks = chunks[order_of(len(chunks), shuffle.seed, epoch)]
    ends = np.cumsum(chunks[:, 2] - chunks[:, 1])
    cuts, done, total = [], 0, int(ends[-1]) if len(ends) else 0
    grows = epoch == 0 and total > shuffle.buffer_rows
    rows = min(shuffle.first_rows, shuffle.buffer_rows) if grows else shuffle.buffer_rows
    while done < total:
        cuts.append(int(np.searchsorted(ends, min(done + rows, total))) + 1)
        done, rows = int(ends[cuts[-1] - 1]), min(2 * rows, shuffle.buffer_rows)
    return np.split(chunks, cuts[:-1]) if cuts else []


def empty_buffer(shuffle: Shuffle, chunks: np.ndarray) -> Rows:
    """Memory for the rows of any group."""
    sizes = chunks[:, 2] - chunks[:, 1]
    count = min(int(sizes.sum()), shuffle.buffer_rows + int(sizes.max()))
    return empty_rows((count * len(shuffle.layers), shuffle.run.widths[shuffle.site]), shuffle.run.dtypes[shuffle.site])


def read_group(shuffle: Shuffle, chunks: np.ndarray, epoch: int, number: int, buffer: Rows) -> Group:
    """Reads, filters and shuffles group `number` in the buffer.

    Raises ValueError if a shard lacks the values for the filter.
    """
    filter_, layers = shuffle.filter, len(shuffle.layers)
    sizes = chunks[:, 2] - chunks[:, 1]
    count = int(sizes.sum())
    ends = np.cumsum(sizes)
    shifts = shuffle.run.row_offsets[chunks[:, 0]] + chunks[:, 1] - (ends - sizes)
    rows = buffer.take(slice(layers * count))
    _read_chunks(shuffle, chunks, rows)
    keep = np.ones(count, bool)
    if filter_.is_of_index:
        keep = _keep(shuffle.run, filter_, chunks)
    order = order_of(len(keep), shuffle.seed, epoch, number + 1)
    if filter_.max_norm_multiple is not None and keep.any():
        norms = _norms(rows).reshape(layers, count)
        keep &= (norms <= filter_.max_norm_multiple * np.median(norms[:, keep], axis=1, keepdims=True)).all(axis=0)
    begins = None if isinstance(shuffle.layer, int) else np.arange(layers) * count
    return Group(rows, ends, shifts, order if keep.all() else order[keep[order]], begins)


def order_of(count: int, *seed: int) -> np.ndarray:
    """A permutation that is the same with every version of numpy; shuffle() differs between versions."""
    random = np.random.Philox(np.random.SeedSequence(seed)).random_raw(count)
    return np.argsort(random)  # a stable sort takes four times as long, and 64 random bits are not equal


def _read_chunks(shuffle: Shuffle, chunks: np.ndarray, into: Rows) -> None:
    """Reads the chunks one after the other, and the layers one after the other. into: [layers * rows, width]."""
    ends = np.cumsum(chunks[:, 2] - chunks[:, 1])

    def read(place: int) -> None:
        number, begin, end = chunks[place].tolist()
        shard, last = shuffle.run.shards[number], int(ends[place])
        for layer in shuffle.layers:
            shard.read_rows(shuffle.site, layer, begin, end, into.take(slice(last - (end - begin), last)))
            last += int(ends[-1])
        shard.release_rows()

    with ThreadPoolExecutor(PARALLEL, "chunks") as pool:
        list(pool.map(read, range(len(chunks))))


def _keep(run: RowSource, filter_: Filter, chunks: np.ndarray) -> np.ndarray:
    """bool [rows of the chunks]: False for rows that a token id, a position or the mask leaves out."""
    sizes = chunks[:, 2] - chunks[:, 1]
    keep = np.ones(int(sizes.sum()), bool)
    begins = np.cumsum(sizes) - sizes
    for number in np.unique(chunks[:, 0]):
        kept_rows = _kept_rows(run, filter_, int(number))
        for place in np.flatnonzero(chunks[:, 0] == number):
            keep[begins[place] : begins[place] + sizes[place]] = kept_rows[chunks[place, 1] : chunks[place, 2]]
    return keep


def _kept_rows(run: RowSource, filter_: Filter, number: int) -> np.ndarray:
    """bool [rows of the shard]."""
    shard = run.shards[number]
    index = run.shard_index(number)
    keep = np.ones(shard.num_rows, bool)
    if filter_.exclude_positions:
        if index.positions is None:
            raise ValueError(
                f"exclude_positions needs one token for each row; rows of {shard.url} are pools of tokens; "
                "leave the option out"
            )
        keep &= ~np.isin(index.positions, list(filter_.exclude_positions))
    if filter_.exclude_ids:
        if index.row_tokens is None:
            raise ValueError(
                f"exclude_ids needs the token id of each row; {shard.url} does not have them; leave the option out"
            )
        keep &= ~np.isin(index.row_tokens, list(filter_.exclude_ids))
    if filter_.masked:
        if index.row_mask is None:
            raise ValueError(f"masked needs the mask of each row; {shard.url} has none; leave the option out")
        keep &= index.row_mask == 1
    return keep


def _norms(rows: Rows) -> np.ndarray:
    """fp32 [n]: the L2 norm of each row."""
    norms = np.empty(len(rows.stored), np.float32)
    for begin in range(0, len(norms), _NORM_ROWS):
        part = slice(begin, begin + _NORM_ROWS)
        values = rows.take(part).to_float32()
        norms[part] = np.sqrt(np.einsum("nd,nd->n", values, values))
    return norms
