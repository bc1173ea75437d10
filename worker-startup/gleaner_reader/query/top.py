"""The rows with the highest scores, of one question or of each of many."""

from dataclasses import dataclass, field

import numpy as np

HISTOGRAM_EDGES = 2.0 ** np.linspace(-16, 16, 65)
# A row and its score. group: the feature that it is of. sample: the number of the first row of its sample.
FOUND = np.dtype([("group", "i8"), ("sample", "i8"), ("row", "i8"), ("score", "f4")])


@dataclass(frozen=True)
class Top:
    """Rows of a run (int64) and their scores (fp32): the highest score first, of equal scores the lower row.

    >>> run.top(12, np.ones(8), n=3).rows.shape
    (3,)
    """

    rows: np.ndarray
    scores: np.ndarray
    state: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Feature:
    """What a run has of one feature; `Run.feature` reads it.

    active: the rows in which it is active, also by_stream; density: their share. at_least: the run cut features off
    some rows, so all three may be too small. histogram: int64 [64], of values by half octaves from 2^-16 to 2^16
    (HISTOGRAM_EDGES); the first and the last have all beyond. top: at most one row of a sample.

    >>> run.feature(12, 5).top.rows[:3]  # doctest: +SKIP
    array([17, 4, 230])
    """

    name: str
    layer: int
    id: int
    active: int
    density: float
    at_least: bool
    max: float
    by_stream: dict[int, int]
    histogram: np.ndarray
    top: Top


class Best:
    """The n best rows of each group, at most `per_sample` of a sample. Rows are added in ascending order."""

    def __init__(self, groups: int, n: int, per_sample: int):
        if n < 1 or per_sample < 1:
            raise ValueError(f"n is {n} and per_sample {per_sample}; set both to at least 1")
        self._n, self._per_sample, self._floor = n, per_sample, np.full(groups, -np.inf, np.float32)
        self.found = np.empty(0, FOUND)

    def add(self, found: np.ndarray) -> None:
        """Leaves out scores that are not finite, and those that n rows before have at least."""
        likely = np.isfinite(found["score"]) & (found["score"] > self._floor[found["group"]])
        found = np.concatenate([self.found, found[likely]])
        found = found[np.lexsort((found["row"], -found["score"], found["group"]))]
        found = found[_ranks(found["group"], found["sample"]) < self._per_sample]
        self.found = found = found[_ranks(found["group"]) < self._n]
        ends = np.searchsorted(found["group"], np.arange(len(self._floor)), "right")
        full = np.diff(ends, prepend=0) == self._n
        self._floor[full] = found["score"][ends[full] - 1]

    def of(self, group: int) -> Top:
        found = self.found[self.found["group"] == group]
        return Top(found["row"], found["score"])


def _ranks(*keys: np.ndarray) -> np.ndarray:
    """How many entries before each one have the same keys."""
    order = np.lexsort(keys)
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    places, ranks = np.arange(len(order)), np.empty(len(order), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return ranks
