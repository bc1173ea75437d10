"""The plan of shards and batches, made before any computation.

The plan follows from the stream, the tokenizer and the spec alone, never from the machine, the time or the past. So a
run with any interruption makes the same bytes as a run without.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..batching import batch_height, batch_width, plan_batches
from ..records.samples import Reject, Sample

# The index and the samples of a shard must fit into memory for rows of any size.
MAX_SHARD_TOKENS = 1 << 20
# A shard ends where its last batch is full, if possible. The gain counts where one batch is a large part of a shard.
_MOST_BATCHES = 64
_MOST_LEFT = 256  # samples that move to the next shard
_SMALLEST_SHARE = 0.5  # of the samples that would fit
_GAIN = 1.02  # the least improvement for which more samples move


@dataclass(frozen=True)
class Capacity:
    """The largest size of a shard. Sizes are those in memory, because the size after a codec is unknown here."""

    shard_bytes: int
    row_bytes: int  # of one stored vector in every layer and site, scales included
    max_length: int  # tokens of a sample
    pooled: bool = False  # one row per sample, the mean of its tokens

    def sample_bytes(self, sample: Sample) -> int:
        """The rows of the sample and its part of the index."""
        rows = row_count(sample, self.pooled)
        return rows * self.row_bytes + 4 * len(sample.token_ids) + 16 + len(sample.kept)


@dataclass(frozen=True)
class ShardPlan:
    """The sample indices first_sample..last_sample: `samples` are stored, the others are rejected."""

    number: int  # from 1
    first_sample: int
    last_sample: int
    samples: tuple[Sample, ...]
    final: bool
    pooled: bool = False

    @property
    def rejected(self) -> int:
        return self.last_sample - self.first_sample + 1 - len(self.samples)

    @cached_property
    def tokens(self) -> int:
        return sum(len(sample.token_ids) for sample in self.samples)

    @property
    def truncated(self) -> int:
        return sum(sample.truncated for sample in self.samples)

    @cached_property
    def row_offsets(self) -> np.ndarray:
        """int64 [S + 1]: sample s owns rows row_offsets[s] to row_offsets[s + 1]."""
        return np.cumsum([0, *(row_count(sample, self.pooled) for sample in self.samples)], dtype=np.int64)

    @property
    def rows(self) -> int:
        return int(self.row_offsets[-1])


def row_count(sample: Sample, pooled: bool) -> int:
    """The number of vectors that are stored of the sample, per layer and site."""
    if pooled:
        return 1
    return len(sample.token_ids if sample.positions is None else sample.positions)


def plan_shards(items: Iterable[Sample | Reject], capacity: Capacity) -> Generator[ShardPlan]:
    """Fills shards in sample order.

    A shard is full when the next sample would exceed its capacity, or MAX_SHARD_TOKENS; a larger sample gets a shard of
    its own. The last samples move to the next shard where the batches are better filled without them. A reject stays
    with the samples before it. Yields nothing when there are no lines.
    """
    number, first, last, size, tokens = 1, 0, -1, 0, 0
    samples: list[Sample] = []
    for item in items:
        if isinstance(item, Sample):
            more = capacity.sample_bytes(item)
            while samples and (size + more > capacity.shard_bytes or tokens + len(item.token_ids) > MAX_SHARD_TOKENS):
                cut = _cut(samples, capacity)
                taken, samples = samples[:cut], samples[cut:]
                next_first = samples[0].index if samples else item.index
                yield ShardPlan(number, first, next_first - 1, tuple(taken), False, capacity.pooled)
                number, first = number + 1, next_first
                size = sum(map(capacity.sample_bytes, samples))
                tokens = sum(len(sample.token_ids) for sample in samples)
            samples.append(item)
            size += more
            tokens += len(item.token_ids)
        last = item.last
    if last >= 0:
        yield ShardPlan(number, first, last, tuple(samples), True, capacity.pooled)


def _cut(samples: Sequence[Sample], capacity: Capacity) -> int:
    """The number of samples for this shard, among samples that all fit."""
    lengths = sorted(len(sample.token_ids) for sample in samples)
    left = held = sum(map(capacity.sample_bytes, samples))
    best, best_fill = len(samples), 0.0
    for count in range(len(samples), max(0, len(samples) - _MOST_LEFT), -1):
        fill = _fill(lengths, capacity.max_length)
        if fill is None:
            break
        if fill > best_fill * _GAIN:
            best, best_fill = count, fill
        sample = samples[count - 1]
        left -= capacity.sample_bytes(sample)
        if left < held * _SMALLEST_SHARE:
            break
        del lengths[bisect_left(lengths, len(sample.token_ids))]
    return best


def _fill(lengths: Sequence[int], max_length: int) -> float | None:
    """The share of real tokens in the batches of samples of these lengths (ascending).

    None for more batches than _MOST_BATCHES, where the last batch hardly counts.
    """
    computed, batches, end = 0, 0, len(lengths)
    while end > 0 and batches < _MOST_BATCHES:
        width = batch_width(lengths[end - 1], max_length)
        height = batch_height(width)
        computed, batches, end = computed + height * width, batches + 1, end - height
    return sum(lengths) / computed if end <= 0 else None


def shapes_of(plan: ShardPlan, max_length: int) -> list[tuple[int, int]]:
    """The (height, width) of the plan's batches, each once, in the order of the batches."""
    batches = plan_batches([len(sample.token_ids) for sample in plan.samples], max_length)
    return list(dict.fromkeys((batch.height, batch.width) for batch in batches))


def tokens_sha256(samples: Iterable[Sample]) -> str:
    """The digest of each sample's index and length (int64) and token ids (int32), little endian, in order."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(np.array([sample.index, len(sample.token_ids)], dtype="<i8").tobytes())
        digest.update(sample.token_ids.astype("<i4").tobytes())
    return digest.hexdigest()
