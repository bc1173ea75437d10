"""Means and variances, added up from the sums that a run of moments stores of each sample."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Moments:
    """Of `count` vectors: mean and var, fp64 [width]. var is divided by count, and loses digits where mean² is larger.

    >>> run.moments(12)[None].mean.shape  # doctest: +SKIP
    (2304,)
    """

    count: int
    mean: np.ndarray
    var: np.ndarray


def add_samples(totals: dict, keys: Iterable[Hashable], counts: np.ndarray, sums: np.ndarray, squares: np.ndarray):
    """Adds each sample to `totals`, {key: [count, sum, squares]} in fp64, one addition after another.

    Their order decides the last bits, so the reader and `run verify` both call this: streams by number, and shards and
    samples ascending. counts: int [samples], the vectors of each. sums, squares: fp32 [samples, width].
    """
    for key, count, *both in zip(keys, counts, sums, squares, strict=True):
        if key not in totals:
            totals[key] = [0, *np.zeros((2, sums.shape[1]))]
        totals[key][0] += int(count)
        for total, values in zip(totals[key][1:], both, strict=True):
            total += values


def moments_of(count: int, total: np.ndarray, squares: np.ndarray) -> Moments:
    mean = total / count
    return Moments(count, mean, np.maximum(squares / count - mean**2, 0))
