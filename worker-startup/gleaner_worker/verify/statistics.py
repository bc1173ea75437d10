"""The statistics of a layer's stored values, compared with the statistics in the header of its shard."""

import math
from dataclasses import dataclass, field

import numpy as np

from gleaner_reader.format.convert import Rows

from ..shards.row_statistics import ZEROS_EVERY, largest_by_range, position_ranges, quantiles

_ROWS_AT_ONCE = 8192
_STATS = ("mean", "norm", "max_abs", "non_finite")
_INT8_STATS = ("mean_square", "int8_error")
_LISTS = ("norm_quantiles", "max_abs_by_position")
# Sums of many fp32 values depend on their order; the largest magnitude does not.
_TOLERANCE = 1e-3
_MAX_ABS_TOLERANCE = 1e-5
_ZEROS_TOLERANCE = 1e-6


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
    zeros: int = 0  # in every ZEROS_EVERY-th row
    is_finite: bool = True
    row_norms: list[np.ndarray] = field(default_factory=list)
    row_largest: list[np.ndarray] = field(default_factory=list)

    def add(self, rows: Rows) -> bool:
        """Adds rows, with `stored` [n, d_model]. Returns whether all of their values are finite."""
        before = self.rows
        self.rows, self.width = before + len(rows.stored), rows.stored.shape[1]
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
            norms = np.sqrt(squares)
            self.norms += float(norms.sum())
            some = values[-(before + begin) % ZEROS_EVERY :: ZEROS_EVERY]
            self.zeros += some.size - int(np.count_nonzero(some))
            self.row_norms.append(norms)
            self.row_largest.append(np.maximum(values.max(axis=1), -values.min(axis=1)))
        if rows.scale is not None:
            self.scale_squares += float(np.square(rows.scale, dtype=np.float64).sum())
        return True

    def contradiction(self, stats: dict, is_int8: bool, positions: np.ndarray | None) -> str | None:
        """The first difference of `stats`, from a shard's header, as a phrase; None without any.

        positions: of the token of each row; None for pools.
        """
        wanted = (*_STATS, *_INT8_STATS) if is_int8 else _STATS
        for key in wanted:
            if not _is_number(value := stats.get(key)):
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
        return (self._int8_contradiction(stats) if is_int8 else None) or self._rows_contradiction(stats, positions)

    def _rows_contradiction(self, stats: dict, positions: np.ndarray | None) -> str | None:
        share = self.zeros / max(-(-self.rows // ZEROS_EVERY) * self.width, 1)
        value = stats.get("zeros", math.nan)
        if not _is_number(value) or abs(value - share) > _ZEROS_TOLERANCE:
            return f"zeros {value!r:.50}, not {share:.7g}"
        norms, largest = (np.concatenate([np.empty(0), *rows]) for rows in (self.row_norms, self.row_largest))
        found = quantiles(norms), largest_by_range(largest, position_ranges(positions))
        for key, numbers, tolerance in zip(_LISTS, found, (_TOLERANCE, _MAX_ABS_TOLERANCE), strict=True):
            values = stats.get(key)
            is_list = isinstance(values, list) and len(values) == len(numbers) and all(map(_is_number, values))
            if not is_list or not np.allclose(values, numbers, rtol=tolerance, atol=0):
                return f"{key} {values!r:.200}, not {[float(f'{number:.7g}') for number in numbers]}"
        return None

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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
