"""Statistics of a shard's rows, from the norm and the largest magnitude of each row."""

import numpy as np

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
ZEROS_EVERY = 64  # rows: zeros are counted here, because one more sum on a TPU takes up to 6 % of a step


def active_stats(active: np.ndarray, k: int) -> dict[str, float]:
    """Of the numbers of active features of rows, of which k are stored: l0, their mean; cut, the share of features that
    is not stored; cut_rows, the share of rows without some."""
    total, cut = int(active.sum(dtype=np.int64)), np.maximum(active.astype(np.int64) - k, 0)
    rows = max(len(active), 1)
    return {"l0": total / rows, "cut": int(cut.sum()) / max(total, 1), "cut_rows": np.count_nonzero(cut) / rows}


def position_ranges(positions: np.ndarray | None) -> np.ndarray | None:
    """The number of each position's range: 0 for position 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7, and so on."""
    return None if positions is None else np.frexp(positions.astype(np.float64))[1]


def largest_by_range(largest: np.ndarray, ranges: np.ndarray | None) -> list[float]:
    """The largest magnitude of each range, 0 for a range without a row; no range for pools."""
    if ranges is None or len(ranges) == 0:
        return []
    found = np.zeros(ranges.max() + 1)
    for number in np.flatnonzero(np.bincount(ranges)):
        found[number] = largest[ranges == number].max()
    return found.tolist()


def quantiles(norms: np.ndarray) -> list[float]:
    """The norms at QUANTILES, each that of a row; zeros without a row."""
    return np.quantile(norms if len(norms) else np.zeros(1), QUANTILES, method="inverted_cdf").tolist()
