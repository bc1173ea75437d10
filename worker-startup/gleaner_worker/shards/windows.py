"""Windows of a stream: consecutive samples, packed into rows.

Windows and rows follow from the stream, the tokenizer and the spec alone, never from the machine, the time or the past.
So a row has the same samples at the same places in every attempt, whatever interrupts a run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..architecture.sites import Capture
from ..model.program.rows import RowLimits, pack
from ..records.samples.sample import Sample
from ..spec.spec import Spec
from .plan import ShardPlan, row_count

MAX_WINDOW_BYTES = 4_000_000_000  # of the vectors that a window stores
_FEW_SAMPLES = 64  # more samples fill their rows, wherever the window ends


@dataclass(frozen=True)
class WindowLimits:
    """The limits of one window. A larger sample has a window of its own."""

    tokens: int
    vectors: int
    samples: int = 1 << 30


@dataclass(slots=True)
class Place:
    """The place of a sample in the shards of its stream."""

    shard: int  # the number of its shard
    position: int  # in the samples of that shard
    sample: Sample


Row = tuple[Place, ...]


@dataclass(frozen=True)
class Window:
    """Consecutive samples of a stream, packed into rows. The rows are ordered by their first sample."""

    rows: tuple[Row, ...]

    @property
    def shards(self) -> list[int]:
        return sorted({place.shard for row in self.rows for place in row})


def window_limits(spec: Spec, capture: Capture) -> WindowLimits:
    sizes = (capture.row_bytes, capture.sample_bytes)
    return WindowLimits(spec.window_tokens, *(max(1, MAX_WINDOW_BYTES // max(size, 1)) for size in sizes))


def plan_windows(
    plans: Iterable[ShardPlan], window: WindowLimits, row: RowLimits, pooled: bool
) -> Iterator[ShardPlan | Window]:
    """Yields every shard plan, and each window after the plans of all of its shards."""
    places: list[Place] = []
    sizes: list[tuple[int, int]] = []  # tokens and vectors of each place
    tokens = vectors = 0
    for plan in plans:
        yield plan
        for position, sample in enumerate(plan.samples):
            more_tokens, more_vectors = len(sample.token_ids), row_count(sample, pooled)
            while places and (
                tokens + more_tokens > window.tokens
                or vectors + more_vectors > window.vectors
                or len(places) >= window.samples
            ):
                end = _fullest_end(sizes, row)
                yield _packed(places[:end], sizes[:end], row)
                places, sizes = places[end:], sizes[end:]
                tokens, vectors = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
            places.append(Place(plan.number, position, sample))
            sizes.append((more_tokens, more_vectors))
            tokens, vectors = tokens + more_tokens, vectors + more_vectors
    if places:
        yield _packed(places, sizes, row)


def _fullest_end(sizes: list[tuple[int, int]], limits: RowLimits) -> int:
    """The number of samples whose rows have the least padding; at least three quarters of a small window."""
    if len(sizes) > _FEW_SAMPLES:
        return len(sizes)

    def tokens_per_row(end: int) -> float:
        return sum(tokens for tokens, _ in sizes[:end]) / len(pack(sizes[:end], limits))

    return max(range(len(sizes) - len(sizes) // 4, len(sizes) + 1), key=lambda end: (tokens_per_row(end), end))


def _packed(places: list[Place], sizes: list[tuple[int, int]], limits: RowLimits) -> Window:
    return Window(tuple(tuple(places[index] for index in row) for row in pack(sizes, limits)))
