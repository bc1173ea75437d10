"""The plan of shards, made before any computation.

The plan follows from the stream, the tokenizer and the spec alone, never from the machine, the time or the past. So an
interrupted run makes the same bytes as an uninterrupted run.
"""

import hashlib
import struct
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..records.samples.documents import Document
from ..records.samples.sample import Reject, Sample

# The index and the samples of a shard must fit into memory for rows of any size.
MAX_SHARD_TOKENS = 1 << 20


@dataclass(frozen=True)
class Capacity:
    """The largest size of a shard. Sizes are sizes in memory: the compressed size is unknown to the plan."""

    shard_bytes: int
    row_bytes: int  # of one stored vector in every layer and site, scales included
    pooled: bool = False  # one row for each sample or span, over several tokens
    sums_bytes: int = 0  # of one sample's sums in every layer and site

    def sample_bytes(self, sample: Sample) -> int:
        """The size of the sample's rows and sums, and of its part of the index."""
        return row_count(sample, self.pooled) * self.row_bytes + self.sums_bytes + sample.index_bytes


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

    @cached_property
    def tokens_sha256(self) -> str:
        return tokens_sha256(self.samples)

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
    """The number of vectors that a shard stores for the sample, per layer and site."""
    if pooled:
        return 1 if sample.pools is None else len(sample.pools)
    return len(sample.token_ids if sample.positions is None else sample.positions)


def plan_shards(items: Iterable[Sample | Reject], capacity: Capacity) -> Generator[ShardPlan]:
    """Fills shards in sample order.

    A shard is full when the next sample would exceed its capacity, or MAX_SHARD_TOKENS; a larger sample gets a shard of
    its own. A reject stays with the samples before it. Yields nothing when there are no lines.
    """
    number, first, last, size, tokens = 1, 0, -1, 0, 0
    samples: list[Sample] = []
    for item in items:
        if isinstance(item, Sample):
            more = capacity.sample_bytes(item)
            if samples and (size + more > capacity.shard_bytes or tokens + len(item.token_ids) > MAX_SHARD_TOKENS):
                yield ShardPlan(number, first, item.index - 1, tuple(samples), False, capacity.pooled)
                number, first, size, tokens, samples = number + 1, item.index, 0, 0, []
            samples.append(item)
            size += more
            tokens += len(item.token_ids)
        last = item.last
    if last >= 0:
        yield ShardPlan(number, first, last, tuple(samples), True, capacity.pooled)


def tokens_sha256(samples: Iterable[Sample | Document]) -> str:
    """The digest of each sample's index and length (int64) and token ids (int32), little endian, in order."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(struct.pack("<qq", sample.index, len(sample.token_ids)))
        digest.update(np.ascontiguousarray(sample.token_ids, "<i4"))
    return digest.hexdigest()
