"""The true statistics of a layer, compared with the statistics that its shard states."""

import math
from dataclasses import dataclass

import numpy as np

from gleaner_reader.convert import Rows, to_float32

_ROWS_AT_ONCE = 8192
_STATS = ("mean", "norm", "max_abs", "non_finite")
# Sums of many fp32 values depend on their order; the largest magnitude does not.
_TOLERANCE = 1e-3
_MAX_ABS_TOLERANCE = 1e-5


@dataclass
class LayerStatistics:
    """The statistics of the values as they are stored."""

    rows: int = 0
    width: int = 0
    total: float = 0.0
    norms: float = 0.0
    max_abs: float = 0.0
    is_finite: bool = True

    def add(self, rows: Rows) -> bool:
        """stored: [n, d_model]. Returns whether all values are finite."""
        self.rows, self.width = self.rows + len(rows.stored), rows.stored.shape[1]
        for begin in range(0, len(rows.stored), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            values = to_float32(rows.stored[part], None if rows.scale is None else rows.scale[part])
            largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
            if not math.isfinite(largest):  # NaN wins every max
                self.is_finite = False
                return False
            self.max_abs = max(self.max_abs, largest)
            self.total += float(values.sum(dtype=np.float64))
            self.norms += float(np.sqrt(np.einsum("nd,nd->n", values, values, dtype=np.float64)).sum())
        return True

    def contradicts(self, stats: object, is_int8: bool) -> str | None:
        """The first difference between `stats`, of a shard's header, and the true statistics; a phrase, or None."""
        if not isinstance(stats, dict):
            return "none"
        wanted = (*_STATS, "int8_error") if is_int8 else _STATS
        for key in wanted:
            value = stats.get(key)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                return f"{key} {value!r:.50}"
        count = max(self.rows, 1)
        norm, mean = self.norms / count, self.total / max(count * self.width, 1)
        if stats["non_finite"] != 0:
            return f"non_finite {stats['non_finite']}"
        if abs(stats["max_abs"] - self.max_abs) > _MAX_ABS_TOLERANCE * self.max_abs:
            return f"max_abs {stats['max_abs']}, where it is {self.max_abs:.7g}"
        if abs(stats["norm"] - norm) > _TOLERANCE * norm:
            return f"norm {stats['norm']}, where it is {norm:.7g}"
        if abs(stats["mean"] - mean) > _TOLERANCE * norm / max(self.width, 1) ** 0.5:
            return f"mean {stats['mean']}, where it is {mean:.7g}"
        return None
