"""Sides that take turns, and the ratios between them."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


def take_turns(sides: dict[str, Callable[[], object]], rounds: int, warm_up: bool = True) -> dict[str, list[float]]:
    """The seconds of each side in each round. With `warm_up` each side runs once before, uncounted."""
    if warm_up:
        for side in sides.values():
            side()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            gc.collect()
            begin = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


@dataclass(frozen=True)
class Figure:
    """One line of a report. value: in `unit`; `x` is how many times as fast."""

    what: str
    value: float
    target: float | None = None
    low: float | None = None  # of the rounds
    high: float | None = None
    detail: str = ""
    unit: str = "x"

    def __str__(self) -> str:
        spread = "" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})"
        aim = "" if self.target is None else f"  target {self.target:g}"
        return f"{self.what:58} {self.value:8.2f} {self.unit}{spread}{aim}{'  ' if self.detail else ''}{self.detail}"


@dataclass(frozen=True)
class Report:
    """The figures of one bench. claim: the comparison in words. notes: lines below the figures."""

    claim: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def speed_up(
    what: str, base: Sequence[float], ours: Sequence[float], target: float | None = None, detail: str = ""
) -> Figure:
    """base / ours: the median over rounds of the ratio of both sides within a round, and its range."""
    ratios = [b / o for b, o in zip(base, ours, strict=True)]
    best = f"best of each {min(base) / min(ours):.2f}"
    return Figure(
        what, statistics.median(ratios), target, min(ratios), max(ratios), f"{best}{'; ' if detail else ''}{detail}"
    )
