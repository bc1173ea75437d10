"""The plan of shards: every sample once, no gaps, within the capacity, the same on every machine."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleaner_worker.records.samples.sample import Reject, Sample
from gleaner_worker.shards import plan as plan_module
from gleaner_worker.shards.plan import Capacity, plan_shards, row_count, tokens_sha256

ROW_BYTES = 10


def sample(index, length, first=0, positions=None, kept=""):
    ids = np.arange(first, first + length, dtype=np.int32)
    picked = None if positions is None else np.array(positions, np.int32)
    return Sample(index=index, token_ids=ids, positions=picked, preview="", truncated=False, kept=kept)


def rejected(index, samples=1):
    return Reject(index, "bad", index, samples)


def stream(lines, per_line=1):
    """The items of these lines: None is a rejected line, (length, rows, kept) a line of samples."""
    items = []
    for number, line in enumerate(lines):
        first = number * per_line
        if line is None:
            items.append(rejected(first, per_line))
            continue
        length, rows, kept = line
        positions = range(min(rows, length))
        items += [sample(first + k, length, positions=positions, kept="k" * kept) for k in range(per_line)]
    return items


def capacity(size, pooled=False):
    return Capacity(size, ROW_BYTES, pooled)


lines = st.lists(st.none() | st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 20)), max_size=60)
streams = st.tuples(lines, st.integers(1, 3)).map(lambda drawn: stream(*drawn))
capacities = st.tuples(st.integers(0, 2000), st.booleans()).map(lambda drawn: capacity(*drawn))


@given(streams, capacities)
def test_every_sample_index_is_in_exactly_one_shard_and_every_sample_is_stored_once(items, size):
    shards = list(plan_shards(items, size))
    assert [shard.number for shard in shards] == list(range(1, len(shards) + 1))
    covered = [index for shard in shards for index in range(shard.first_sample, shard.last_sample + 1)]
    assert covered == list(range(items[-1].last + 1 if items else 0))
    assert [s for shard in shards for s in shard.samples] == [item for item in items if isinstance(item, Sample)]
    assert sum(shard.rejected for shard in shards) == len(covered) - sum(len(shard.samples) for shard in shards)


@given(streams, capacities)
def test_every_row_of_a_shard_belongs_to_one_sample(items, size):
    for shard in plan_shards(items, size):
        counts = [row_count(sample, size.pooled) for sample in shard.samples]
        assert np.diff(shard.row_offsets).tolist() == counts and min(counts, default=1) >= 1
        assert (shard.row_offsets[0], shard.rows) == (0, sum(counts))


@given(streams, capacities)
def test_a_shard_is_within_its_bytes_unless_it_holds_one_sample(items, size):
    for shard in plan_shards(items, size):
        index = 4 * shard.tokens + sum(16 + len(sample.kept) for sample in shard.samples)
        assert shard.rows * ROW_BYTES + index <= size.shard_bytes or len(shard.samples) <= 1


@given(streams, capacities)
def test_a_shard_holds_as_many_samples_as_fit(items, size):
    shards = list(plan_shards(items, size))
    stored = [sample for shard in shards for sample in shard.samples]
    begin = 0
    for shard, following in pairwise(shards):
        assert list(shard.samples) == most_that_fit(stored[begin:], size)
        assert following.first_sample == following.samples[0].index
        begin += len(shard.samples)


def most_that_fit(samples, size):
    """The first sample, and the samples after it that fit into one shard."""
    ends = np.cumsum([size.sample_bytes(sample) for sample in samples])
    return samples[: max(1, int(np.searchsorted(ends, size.shard_bytes, "right")))]


def test_rejects_stay_with_the_samples_before_them_where_a_shard_is_cut():
    room = 8 * (256 * ROW_BYTES + 4 * 256 + 16)
    items = [item for i in range(0, 40, 2) for item in (sample(i, 256), rejected(i + 1))]
    shards = list(plan_shards(items, capacity(room)))
    assert [(shard.first_sample, shard.last_sample, shard.rejected) for shard in shards] == [
        (0, 15, 8),
        (16, 31, 8),
        (32, 39, 4),
    ]


def test_a_shard_ends_at_the_limit_of_tokens_with_rows_of_any_size(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_SHARD_TOKENS", 100)
    shards = list(plan_shards([sample(i, 30, positions=[0]) for i in range(10)], capacity(10**9)))
    assert [shard.tokens for shard in shards] == [90, 90, 90, 30]
    assert [len(s.samples) for s in plan_shards([sample(0, 250), sample(1, 1)], capacity(10**9))] == [1, 1]


@given(streams, capacities)
def test_only_the_last_shard_is_final(items, size):
    finals = [shard.final for shard in plan_shards(items, size)]
    assert finals == [False] * (len(finals) - 1) + [True] * bool(finals)


@given(streams, capacities, st.integers(0, 180))
def test_a_shard_does_not_depend_on_the_lines_after_the_next_shard_begins(items, size, cut):
    """Shards before a kill are those of the whole stream, except for the last."""
    whole, part = list(plan_shards(items, size)), list(plan_shards(items[:cut], size))
    for shard in part[:-1]:
        same = whole[shard.number - 1]
        assert (same.first_sample, same.last_sample, tokens_sha256(same.samples)) == (
            shard.first_sample,
            shard.last_sample,
            tokens_sha256(shard.samples),
        )


def test_a_stream_of_rejects_is_one_final_shard_without_samples():
    (shard,) = plan_shards(stream([None] * 3, per_line=2), capacity(10))
    assert (shard.first_sample, shard.last_sample, shard.samples, shard.rejected, shard.rows, shard.final) == (
        0,
        5,
        (),
        6,
        0,
        True,
    )


def test_an_empty_stream_has_no_shards():
    assert list(plan_shards([], capacity(10))) == []


def test_planning_holds_one_shard_at_a_time():
    taken = []

    def items():
        for index in range(100):
            taken.append(index)
            yield sample(index, 10)

    plans = plan_shards(items(), capacity(3 * (10 * ROW_BYTES + 56)))
    next(plans)
    assert len(taken) == 4


@pytest.mark.parametrize(
    ("name", "given", "size"),
    [
        ("all tokens", {}, 5 * ROW_BYTES + 4 * 5 + 16),
        ("two positions", {"positions": [0, 4]}, 2 * ROW_BYTES + 4 * 5 + 16),
        ("with kept fields", {"kept": '{"a":1}'}, 5 * ROW_BYTES + 4 * 5 + 16 + 7),
    ],
)
def test_the_size_of_a_sample_is_its_rows_and_its_part_of_the_index(name, given, size):
    assert capacity(0).sample_bytes(sample(0, 5, **given)) == size
    assert capacity(0, pooled=True).sample_bytes(sample(0, 5, **given)) == size - ROW_BYTES * (
        row_count(sample(0, 5, **given), False) - 1
    )


def test_tokens_sha256_differs_between_samples():
    digests = [
        tokens_sha256(samples)
        for samples in (
            [],
            [sample(0, 3)],
            [sample(1, 3)],
            [sample(0, 3, first=1)],
            [sample(0, 1), sample(1, 2, first=1)],
            [sample(0, 2), sample(1, 1, first=2)],
        )
    ]
    assert len(set(digests)) == len(digests)
