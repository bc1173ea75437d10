"""Counts the samples, tokens, rows and bytes of lines, and plans their shards and the decoder's operations."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, islice, repeat

from ..architecture.sites import Capture
from ..model.program.rows import RowLimits
from ..preflight.operations import operations_of
from ..records.samples.generated import longest_answers
from ..records.samples.sample import Reject, Sample
from ..records.samples.sample_settings import SampleSettings
from ..records.samples.samples import read_samples
from ..shards.plan import Capacity, plan_shards, row_count
from ..shards.windows import Window, WindowLimits, plan_windows

# A plan repeats the sampled samples until it has so many shards or so many samples.
_SHARDS, _SAMPLES = 12, 100_000
_REASONS = 3
_NUMBER = re.compile(r"(?:0x|\\u)[0-9a-f]+|\d+")


@dataclass
class Counts:
    """The counts of a block or of a whole stream."""

    lines: int = 0
    samples: int = 0
    rejected: int = 0
    truncated: int = 0
    tokens: int = 0
    rows: int = 0
    shard_bytes: int = 0  # rows and index, uncompressed, as Capacity counts them


@dataclass
class CountedLines:
    """`items` and their counts. `reasons`: reason of a reject -> number of samples."""

    counts: Counts
    items: list[Sample | Reject]
    reasons: Counter = field(default_factory=Counter)


def count_lines_of(path: str, name: str, settings: SampleSettings, capacity: Capacity) -> CountedLines:
    """Counts the lines of the file at `path` with the worker's own code. `name`: of the stream, for messages."""
    counted = CountedLines(Counts(), list(read_samples(path, name, settings, longest_answers(settings))))
    counts = counted.counts
    for item in counted.items:
        if isinstance(item, Reject):
            counts.rejected += item.samples
            counted.reasons[item.reason] += item.samples
            continue
        counts.samples += 1
        counts.truncated += item.truncated
        counts.tokens += len(item.token_ids)
        counts.rows += row_count(item, capacity.pooled)
        counts.shard_bytes += capacity.sample_bytes(item)
    if counted.items:
        counts.lines = counted.items[-1].line + 1
    return counted


@dataclass(frozen=True)
class Range:
    """An estimated count with its 95 % confidence interval, from the variance between blocks.

    `high` is infinite for a single block, which has no variance.
    """

    estimate: float
    low: float
    high: float

    def record(self) -> dict:
        high = None if math.isinf(self.high) else math.ceil(self.high)
        return {"estimate": round(self.estimate), "low": math.floor(self.low), "high": high}


def extrapolate(blocks: Sequence[tuple[Counts, float]], total_bytes: int) -> dict[str, Range]:
    """The counts of the whole streams, from (counts, bytes of the stored stream) of each block.

    The estimator is the ratio to bytes over clusters, with its linearised variance (Cochran, Sampling Techniques, 1977,
    chapter 6).
    """
    sampled = sum(size for _, size in blocks)
    n = len(blocks)
    ranges = {}
    for name in (count.name for count in fields(Counts)):
        values = [getattr(counts, name) for counts, _ in blocks]
        ratio = sum(values) / sampled
        half = math.inf
        if n > 1:
            squares = sum((value - ratio * size) ** 2 for value, (_, size) in zip(values, blocks, strict=True))
            unsampled = max(0.0, 1 - sampled / total_bytes)
            error = math.sqrt(n / (n - 1) * squares * unsampled) / sampled
            half = (1.96 + 2.4 / (n - 1)) * error  # about Student's t for 95 %; 8 % too small for 5 blocks
        seen = sum(values)
        low = max(seen, (ratio - half) * total_bytes)
        ranges[name] = Range(ratio * total_bytes, low, (ratio + half) * total_bytes)
    return ranges


@dataclass(frozen=True)
class PlanFigures:
    """The shards, tokens and operations of planned samples."""

    shards: int
    fill: float  # the used share of a full shard's capacity, on average
    tokens: int
    computed_tokens: int  # padding included
    operations: float  # of the decoder, up to the deepest stored layer


def plan_of(
    items: Iterable[Sample | Reject],
    capacity: Capacity,
    capture: Capture,
    window: WindowLimits,
    row: RowLimits,
) -> PlanFigures:
    """Plans shards and rows as the worker does."""
    fills, shards, tokens, rows = [], 0, 0, 0
    for item in plan_windows(plan_shards(items, capacity), window, row, capacity.pooled):
        if isinstance(item, Window):
            rows += len(item.rows)
            continue
        shards += 1
        tokens += item.tokens
        if not item.final:
            fills.append(sum(map(capacity.sample_bytes, item.samples)) / capacity.shard_bytes)
    operations = rows * operations_of(capture, row.tokens)
    return PlanFigures(shards, sum(fills) / len(fills) if fills else 1.0, tokens, rows * row.tokens, operations)


def repeat_samples(samples: Sequence[Sample], capacity: Capacity) -> Iterable[Sample]:
    """Repeats the samples until they fill enough shards."""
    if not samples:
        return []
    size = sum(map(capacity.sample_bytes, samples))
    times = max(1, min(math.ceil(_SHARDS * capacity.shard_bytes / size), math.ceil(_SAMPLES / len(samples))))
    return islice(chain.from_iterable(repeat(samples, times)), times * len(samples))


def common_reasons(reasons: Counter) -> list[dict]:
    """The most frequent kinds of reasons, each with its first example. Reasons of one kind differ only in numbers."""
    kinds: Counter = Counter()
    examples: dict[str, str] = {}
    for reason, samples in reasons.items():
        kind = _NUMBER.sub("0", reason)
        kinds[kind] += samples
        examples.setdefault(kind, reason)
    return [{"reason": examples[kind], "samples": samples} for kind, samples in kinds.most_common(_REASONS)]
