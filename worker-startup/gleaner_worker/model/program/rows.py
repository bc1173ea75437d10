"""Rows of tokens of one length: their limits, and the packing of samples into them."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Packed rows of T tokens, as arrays or their shapes: samples one after another, then padding."""

    token_ids: Any  # int32 [R, T]
    segments: Any  # int32 [R, T]: 1 for the first sample of a row, 2 for the next; 0 for padding
    positions: Any  # int32 [R, T]: of the token in its sample


@dataclass(frozen=True)
class RowLimits:
    """The limits of one row."""

    tokens: int
    samples: int
    vectors: int  # that are stored


def row_length(least: int, max_length: int) -> int:
    """The length of every row of a run: the smallest power of two that holds any sample, and no less than `least`."""
    return max(least, 1 << (max_length - 1).bit_length())


def pack(sizes: Sequence[tuple[int, int]], limits: RowLimits) -> list[list[int]]:
    """Packs items of (tokens, vectors) into rows, best fit first, the longest items first.

    Returns the indices of each row's items, ascending; the rows are ordered by their first item. Every item must fit
    into an empty row.
    """
    rows: list[list[int]] = []
    vectors: list[int] = []  # of each row
    free: list[tuple[int, int]] = []  # (free tokens, row), ascending, of the rows with room for another sample
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index][0], index)):
        tokens, stored = sizes[index]
        at = bisect_left(free, (tokens, -1))
        while at < len(free) and vectors[free[at][1]] + stored > limits.vectors:
            at += 1
        if at < len(free):
            left, row = free.pop(at)
        else:
            left, row = limits.tokens, len(rows)
            rows.append([])
            vectors.append(0)
        rows[row].append(index)
        vectors[row] += stored
        if left > tokens and len(rows[row]) < limits.samples:
            insort(free, (left - tokens, row))
    return sorted(sorted(row) for row in rows)
