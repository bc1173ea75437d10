"""Variants of an ARC task of equal difficulty: rotated, mirrored, recoloured, with the examples in another order.

A variant follows from the seed, the grids and its number k by SHA-256 alone, so every worker of every version makes
the same variants. Variant 0 is the task itself. Eight consecutive variants have the eight different rotations and
reflections of a square.
"""

import hashlib
import json
from dataclasses import dataclass

from .grids import Grid

_BACKGROUND_CHANGES_PER_MILLION = 100_000


@dataclass(frozen=True)
class Task:
    """An ARC task."""

    train: tuple[tuple[Grid, Grid], ...]  # input, output
    test: Grid  # an input; its output is never stored

    @property
    def grids(self) -> list[Grid]:
        return [grid for pair in self.train for grid in pair] + [self.test]


def augment(task: Task, seed: int, k: int) -> Task:
    """Variant `k` of the task."""
    if k == 0:
        return task
    content = hashlib.sha256(json.dumps([seed, len(task.train), task.grids]).encode()).digest()
    form = ([0] + _Draws(content).shuffled(range(1, 8)))[k % 8]
    draws = _Draws(content + k.to_bytes(8, "big"))
    kept = 0 if draws.below(1_000_000) < _BACKGROUND_CHANGES_PER_MILLION else 1  # 0 is the background
    colours = str.maketrans("0123456789"[kept:], "".join(draws.shuffled("0123456789"[kept:])))

    def change(grid: Grid) -> Grid:
        return tuple(row.translate(colours) for row in _rotate(grid, form))

    return Task(tuple((change(a), change(b)) for a, b in draws.shuffled(task.train)), change(task.test))


def _rotate(grid: Grid, form: int) -> Grid:
    """Rotates by form % 4 quarter turns clockwise, after mirroring left to right where form is 4 or more."""
    if form >= 4:
        grid = tuple(row[::-1] for row in grid)
    for _ in range(form % 4):
        grid = tuple(map("".join, zip(*grid[::-1], strict=True)))
    return grid


class _Draws:
    """Pseudorandom integers: SHA-256 of key and counter, 64 bits at a time."""

    def __init__(self, key: bytes):
        self._key, self._count = key, 0

    def below(self, limit: int) -> int:
        """A uniform integer from 0 to limit - 1, by rejection sampling."""
        while True:
            digest = hashlib.sha256(self._key + b"draw" + self._count.to_bytes(8, "big")).digest()
            self._count += 1
            number = int.from_bytes(digest[:8], "big")
            if number < (1 << 64) // limit * limit:  # larger numbers would make small results more probable
                return number % limit

    def shuffled(self, items) -> list:
        """The items in random order, by the Fisher-Yates shuffle."""
        items = list(items)
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
        return items
