"""The distance between stored rows and the rows of a reference, for one site of one layer."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Drift:
    """Sums over all rows, and the row that is farthest away in relation to its length."""

    rows: int = 0
    cosines: float = 0.0
    error_squares: float = 0.0
    squares: float = 0.0
    worst: dict[str, Any] | None = None
    # By its name in the report, a sum and what it is a share of.
    shares: dict[str, np.ndarray] = field(default_factory=lambda: defaultdict(lambda: np.zeros(2)))

    def add_features(self, stored: np.ndarray, wanted: np.ndarray, x: np.ndarray, again: np.ndarray | None) -> None:
        """Adds the share of the features of either row that both rows have, for rows [rows, features], and what the
        stored features lose of x [rows, width], which they reconstruct as `again`."""
        both, either = ((stored != 0) & (wanted != 0)).sum(axis=1), ((stored != 0) | (wanted != 0)).sum(axis=1)
        self.shares["overlap"] += np.where(either == 0, 1, both / np.maximum(either, 1)).sum(), len(either)
        if again is not None:
            self.shares["reconstruction_error"] += ((x - again) ** 2).sum(), (x**2).sum()

    def add(self, stored: np.ndarray, wanted: np.ndarray, stream: str, sample: int, positions: np.ndarray | None):
        """stored, wanted: [rows, width]. positions: of the token of each row; None for a mean of tokens.

        Equal rows of zeros have the cosine 1. A row of zeros in the reference has the relative error 0 or 1.
        """
        stored, wanted = stored.astype(np.float64), wanted.astype(np.float64)
        errors, sizes = np.linalg.norm(stored - wanted, axis=1), np.linalg.norm(wanted, axis=1)
        lengths = np.maximum(np.linalg.norm(stored, axis=1) * sizes, np.finfo(np.float64).tiny)
        self.rows += len(wanted)
        self.cosines += float(np.where(errors == 0, 1.0, (stored * wanted).sum(axis=1) / lengths).sum())
        self.error_squares += float((errors**2).sum())
        self.squares += float((sizes**2).sum())
        relative = np.where(sizes > 0, errors / np.where(sizes > 0, sizes, 1), errors > 0)
        row = int(relative.argmax())
        if self.worst is None or relative[row] > self.worst["relative_error"]:
            position = None if positions is None else int(positions[row])
            place = {"stream": stream, "sample": sample, "position": position}
            self.worst = place | {"relative_error": rounded(relative[row])}

    def report(self) -> dict:
        """relative_error: the L2 norm of all differences over that of the reference; cosine, overlap: the mean over
        rows; reconstruction_error: the share of the squares of x that stored features lose."""
        size = max(self.squares, np.finfo(np.float64).tiny)
        return {
            "relative_error": rounded((self.error_squares / size) ** 0.5),
            "cosine": rounded(self.cosines / max(self.rows, 1)),
            "worst": self.worst,
        } | {name: rounded(part / (whole or 1)) for name, (part, whole) in self.shares.items()}


def rounded(value: float) -> float:
    return float(f"{value:.6g}")
