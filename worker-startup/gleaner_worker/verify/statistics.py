"""The statistics of a layer's stored values, compared with the statistics in the header of its shard."""

import math
from dataclasses import dataclass

import numpy as np

from gleaner_reader.convert import Rows

_ROWS_AT_ONCE = 8192
_STATS = ("mean", "norm", "max_abs", "non_finite")
_INT8_STATS = ("mean_square", "int8_error")
# Sums of many fp32 values depend on their order; the largest magnitude does not.
_TOLERANCE = 1e-3
_MAX_ABS_TOLERANCE = 1e-5


@dataclass
class LayerStatistics:
    """Collects the statistics of a layer's values, as shards/shard_stats.py defines them."""

    rows: int = 0
    width: int = 0
    total: float = 0.0
    norms: float = 0.0
    squares: float = 0.0
    scale_squares: float = 0.0  # of int8
    max_abs: float = 0.0
    is_finite: bool = True

    def add(self, rows: Rows) -> bool:
        """Adds rows, with `stored` [n, d_model]. Returns whether all of their values are finite."""
        self.rows, self.width = self.rows + len(rows.stored), rows.stored.shape[1]
        for begin in range(0, len(rows.stored), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            values = rows.take(part).to_float32()
            largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
            if not math.isfinite(largest):  # max and min return NaN for any NaN
                self.is_finite = False
                return False
            self.max_abs = max(self.max_abs, largest)
            self.total += float(values.sum(dtype=np.float64))
            squares = np.einsum("nd,nd->n", values, values, dtype=np.float64)
            self.squares += float(squares.sum())
            self.norms += float(np.sqrt(squares).sum())
        if rows.scale is not None:
            self.scale_squares += float(np.square(rows.scale, dtype=np.float64).sum())
        return True

    def contradiction(self, stats: dict, is_int8: bool) -> str | None:
        """The first difference of `stats`, from a shard's header, as a phrase; None without any."""
        wanted = (*_STATS, *_INT8_STATS) if is_int8 else _STATS
        for key in wanted:
            value = stats.get(key)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                return f"{key} {value!r:.50}"
        count = max(self.rows, 1)
        norm, mean = self.norms / count, self.total / max(count * self.width, 1)
        if stats["non_finite"] != 0:
            return f"non_finite {stats['non_finite']}"
        if abs(stats["max_abs"] - self.max_abs) > _MAX_ABS_TOLERANCE * self.max_abs:
            return f"max_abs {stats['max_abs']}, not {self.max_abs:.7g}"
        if abs(stats["norm"] - norm) > _TOLERANCE * norm:
            return f"norm {stats['norm']}, not {norm:.7g}"
        if abs(stats["mean"] - mean) > _TOLERANCE * norm / max(self.width, 1) ** 0.5:
            return f"mean {stats['mean']}, not {mean:.7g}"
        return self._int8_contradiction(stats) if is_int8 else None

    def _int8_contradiction(self, stats: dict) -> str | None:
        """Compares the norms of all values before and after rounding. They differ by at most the norm of the errors.

        Rounding to int8 moves a value by at most half of its row's scale. The stored values determine nothing more.
        """
        values, stored = self.rows * self.width, self.squares**0.5
        tolerance = _TOLERANCE * stored
        most_error = (self.width * self.scale_squares) ** 0.5 / 2 + tolerance
        before = (max(float(stats["mean_square"]), 0) * values) ** 0.5
        error = before * stats["int8_error"]
        if stats["mean_square"] < 0 or abs(before - stored) > most_error:
            return f"mean_square {stats['mean_square']}, not about {self.squares / max(values, 1):.7g}"
        if not abs(before - stored) - tolerance <= error <= most_error:
            return f"int8_error {stats['int8_error']}, which contradicts mean_square or the scales"
        return None
