"""Rows of one layer in the order of storage, some at a time, and the origin of each row."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..format.convert import Rows, to_float16
from ..format.errors import ShardError
from ..format.index import Index
from .shard import Shard
from .shards import Shards

_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Piece:
    """Rows `begin` to `end` of the run. columns: int64 [rows] each, by the name of the origin.

    index: of the shard of the rows, in which the first of them is `begin_in_shard`.
    """

    begin: int
    rows: Rows
    columns: dict[str, np.ndarray]
    index: Index
    begin_in_shard: int

    @property
    def end(self) -> int:
        return self.begin + len(self.rows.stored)


def site_of(run: Shards[Shard], layer: int, site: str | None) -> str:
    """The site. Raises ValueError for a layer or a site that the run lacks."""
    run.layer(layer, site)
    return run.first.site(site)


def as_float(values: np.ndarray, dtype: str, what: str) -> np.ndarray:
    """fp32 values as float32 or float16. Raises ValueError for a value that float16 cannot hold."""
    return to_float16(values, what) if dtype == "float16" else values


def columns_of(run: Shards[Shard]) -> list[str]:
    """The origins of a row. Pools of tokens have no position and no token."""
    return ["stream", "sample_idx", *_more_columns(run.index(run.first))]


def _more_columns(index: Index) -> dict[str, np.ndarray]:
    """int64 [rows]: the columns that only some runs have."""
    positions = None if index.row_tokens is None else index.positions
    more = {"position": positions, "token_id": index.row_tokens, "span_idx": index.span_idx, "mask": index.row_mask}
    return {name: column.astype(np.int64) for name, column in more.items() if column is not None}


def pieces(run: Shards[Shard], site: str, layer: int, begin: int = 0) -> Iterator[Piece]:
    """Yields the rows of the run from row `begin`. Raises ShardError for a shard without the origins of others."""
    names = columns_of(run)
    offsets = run.row_offsets
    for number, shard in enumerate(run.shards):
        if offsets[number + 1] <= begin:
            continue
        index = run.index(shard)
        columns = {
            "stream": np.full(shard.num_rows, shard.stream, np.int64),
            "sample_idx": np.repeat(index.sample_idx, np.diff(index.row_offsets)),
        }
        columns |= _more_columns(index)
        if absent := [name for name in names if name not in columns]:
            raise ShardError(f"{shard.url} lacks the {absent[0]} of rows that other shards of the run have")
        step = max(_ROWS_AT_ONCE, shard.block_rows(site))
        for first in range(max(0, begin - int(offsets[number])), shard.num_rows, step):
            last = min(first + step, shard.num_rows)
            rows = shard.rows(site, layer, first, last)
            origins = {name: columns[name][first:last] for name in names}
            yield Piece(int(offsets[number]) + first, rows, origins, index, first)
        shard.release()


def ahead(found: Iterator[Piece]) -> Iterator[Piece]:
    """Yields the pieces, and reads the next one in a thread."""
    with ThreadPoolExecutor(1, "ahead") as pool:
        waiting = pool.submit(next, found, None)
        while (piece := waiting.result()) is not None:
            waiting = pool.submit(next, found, None)
            yield piece
