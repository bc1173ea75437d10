"""Counts streams for an estimate: every line of small streams, or the lines of a sample of large ones."""

import math
from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..architecture.sites import Capture
from ..failures import Failure
from ..model.program.rows import RowLimits
from ..records.lines.stream import no_lines
from ..records.samples.sample import Reject, Sample
from ..records.samples.sample_settings import SampleSettings
from ..shards.plan import Capacity
from ..shards.windows import WindowLimits
from .blocks import Block, Source
from .count import Counts, Range, count_lines_of, extrapolate, plan_of, repeat_samples


@dataclass(frozen=True)
class Found:
    """What was counted: `blocks`, `lines` and `bytes` of the streams that were read."""

    totals: dict[str, Range]
    computed_tokens: float
    operations: float
    blocks: int
    lines: int
    bytes: float


@dataclass(frozen=True)
class StreamCounter:
    """Counts lines by way of the file `path`, and plans their samples as the worker does."""

    path: str
    settings: SampleSettings
    capacity: Capacity
    capture: Capture
    window: WindowLimits
    row: RowLimits
    reasons: Tally = field(default_factory=Tally)

    def _count(self, data: bytes, stream: str):
        with open(self.path, "wb") as file:
            file.write(data)
        counted = count_lines_of(self.path, stream, self.settings, self.capacity)
        self.reasons.update(counted.reasons)
        return counted

    def _plan(self, items: Iterable[Sample | Reject]):
        return plan_of(items, self.capacity, self.capture, self.window, self.row)

    def whole(self, sources: list[Source]) -> Found:
        """Counts every line. Raises Failure for a stream without lines."""
        total, plans = Counts(), []
        for source in sources:
            counted = self._count(source.read(0, source.size), source.name)
            if counted.counts.lines == 0:
                raise no_lines(source.name)
            for name, value in vars(counted.counts).items():
                setattr(total, name, getattr(total, name) + value)
            plans.append(self._plan(counted.items))
        shards = sum(plan.shards for plan in plans)
        totals = {name: Range(value, value, value) for name, value in (*vars(total).items(), ("shards", shards))}
        computed = sum(plan.computed_tokens for plan in plans)
        operations = sum(plan.operations for plan in plans)
        return Found(totals, computed, operations, len(plans), total.lines, sum(source.size for source in sources))

    def sample(self, blocks: list[Block], sources: list[Source]) -> Found:
        """Extrapolates from blocks of the streams. Raises Failure if no line is short enough to be a record."""
        samples, parts = [], []
        for block in blocks:
            counted = self._count(block.data, block.stream)
            samples += [item for item in counted.items if not isinstance(item, Reject)]
            parts.append((counted.counts, block.stream_bytes))
        if not parts:
            raise Failure(
                "stream",
                "Failed to estimate: no line of the sample is short enough to be a record; raise --sample-bytes, "
                "or shorten the lines",
            )
        total_bytes = sum(source.size for source in sources)
        totals = extrapolate(parts, total_bytes)
        plan = self._plan(repeat_samples(samples, self.capacity))
        totals["shards"] = _shards(totals["shard_bytes"], sources, total_bytes, plan.fill, self.capacity)
        scale = totals["tokens"].estimate / max(plan.tokens, 1)
        computed, operations = plan.computed_tokens * scale, plan.operations * scale
        lines, read = sum(counts.lines for counts, _ in parts), sum(size for _, size in parts)
        return Found(totals, computed, operations, len(parts), lines, read)


def _shards(shard_bytes: Range, sources: list[Source], total: int, fill: float, capacity: Capacity) -> Range:
    """The number of shards of all streams. The last shard of each stream is partly filled."""

    def count(whole: float) -> int:
        return sum(max(1, math.ceil(whole * source.size / total / (fill * capacity.shard_bytes))) for source in sources)

    if math.isinf(shard_bytes.high):
        return Range(count(shard_bytes.estimate), len(sources), math.inf)
    return Range(count(shard_bytes.estimate), count(shard_bytes.low), count(shard_bytes.high))
