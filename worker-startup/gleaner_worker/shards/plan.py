"""Which samples go into which shard and which batch: decided before anything is computed.

The plan follows from the stream, the tokenizer and the spec alone, never from the machine, the time or what went
before. So a run that was interrupted anywhere makes the same bytes as one that was not.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..records.samples import Reject, Sample

SHORTEST_BATCH_TOKENS = 32
BATCH_TOKENS = 2048


@dataclass(frozen=True)
class ShardPlan:
    """The lines first_sample..last_sample, of which `samples` are stored and the rest are rejected."""

    number: int  # from 1
    first_sample: int
    last_sample: int
    samples: tuple[Sample, ...]
    final: bool

    @property
    def rejected(self) -> int:
        return self.last_sample - self.first_sample + 1 - len(self.samples)

    @property
    def tokens(self) -> int:
        return sum(len(sample.token_ids) for sample in self.samples)

    @property
    def truncated(self) -> int:
        return sum(sample.truncated for sample in self.samples)


@dataclass(frozen=True)
class Batch:
    """`rows` are positions in the plan's samples; the array has `height` rows of `width` tokens, dummies included."""

    rows: tuple[int, ...]
    height: int
    width: int


def plan_shards(items: Iterable[Sample | Reject], capacity_tokens: int) -> Iterator[ShardPlan]:
    """Fills shards greedily in line order.

    A shard closes when the next sample would bring it over `capacity_tokens`; a sample larger than that gets a shard of
    its own. Rejected lines stay with the samples before them. Yields nothing when there are no lines at all.
    """
    number, first, last, tokens = 1, 0, -1, 0
    samples: list[Sample] = []
    for item in items:
        if isinstance(item, Sample):
            if samples and tokens + len(item.token_ids) > capacity_tokens:
                yield ShardPlan(number, first, last, tuple(samples), final=False)
                number, first, tokens = number + 1, item.index, 0
                samples = []
            samples.append(item)
            tokens += len(item.token_ids)
        last = item.index
    if last >= 0:
        yield ShardPlan(number, first, last, tuple(samples), final=True)


def capacity_tokens(shard_size_bytes: int, layers: int, d_model: int, itemsize: int) -> int:
    return shard_size_bytes // (layers * d_model * itemsize)


def plan_batches(lengths: list[int], max_length: int) -> list[Batch]:
    """Groups samples of similar length into few fixed shapes, longest first.

    Rows that the long samples of a shape leave free are given to the next shorter ones, so that only the very last
    batch of a shard can have dummy rows.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    batches = []
    while order:
        width = _width(lengths[order[0]], max_length)
        height = max(1, BATCH_TOKENS // width)
        batches.append(Batch(tuple(order[:height]), height, width))
        order = order[height:]
    return batches


def _width(length: int, max_length: int) -> int:
    width = SHORTEST_BATCH_TOKENS
    while width < length:
        width *= 2
    # The longest shape ends at the limit itself, not at the next power of two.
    return min(width, -(-max_length // SHORTEST_BATCH_TOKENS) * SHORTEST_BATCH_TOKENS)


def tokens_sha256(samples: Iterable[Sample]) -> str:
    """Over each sample's index and length (int64) and token ids (int32), little endian, in order."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(np.array([sample.index, len(sample.token_ids)], dtype="<i8").tobytes())
        digest.update(sample.token_ids.astype("<i4").tobytes())
    return digest.hexdigest()
