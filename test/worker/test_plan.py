import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gleaner_worker.shards.plan import (
    BATCH_TOKENS,
    SHORTEST_BATCH_TOKENS,
    capacity_tokens,
    plan_batches,
    plan_shards,
    tokens_sha256,
)
from gleaner_worker.records.samples import Reject, Sample


def sample(index, length, first=0):
    return Sample(index, np.arange(first, first + length, dtype=np.int32), "", False)


def stream(lengths):
    """One item per line; a length of 0 is a rejected line."""
    return [sample(i, n) if n else Reject(i, "bad") for i, n in enumerate(lengths)]


streams = st.lists(st.integers(0, 30), max_size=60)
capacities = st.integers(0, 80)


@given(streams, capacities)
def test_every_line_is_in_exactly_one_shard_and_every_sample_stored_once(lengths, capacity):
    shards = list(plan_shards(stream(lengths), capacity))
    assert [shard.number for shard in shards] == list(range(1, len(shards) + 1))
    covered = [index for shard in shards for index in range(shard.first_sample, shard.last_sample + 1)]
    assert covered == list(range(len(lengths)))
    assert [s.index for shard in shards for s in shard.samples] == [i for i, n in enumerate(lengths) if n]
    assert [shard.rejected for shard in shards] == [
        sum(n == 0 for n in lengths[shard.first_sample : shard.last_sample + 1]) for shard in shards
    ]


@given(streams, capacities)
def test_a_shard_is_within_its_size_unless_it_holds_one_sample(lengths, capacity):
    for shard in plan_shards(stream(lengths), capacity):
        assert shard.tokens <= capacity or len(shard.samples) == 1


@given(streams, capacities)
def test_a_shard_is_full_when_the_next_one_begins(lengths, capacity):
    shards = list(plan_shards(stream(lengths), capacity))
    for shard, following in zip(shards, shards[1:]):
        assert shard.tokens + len(following.samples[0].token_ids) > capacity
        assert following.first_sample == following.samples[0].index


@given(streams, capacities)
def test_only_the_last_shard_is_final(lengths, capacity):
    finals = [shard.final for shard in plan_shards(stream(lengths), capacity)]
    assert finals == [False] * (len(finals) - 1) + [True] * bool(finals)


@given(streams, capacities, st.integers(0, 60))
def test_shards_that_are_followed_do_not_depend_on_what_follows(lengths, capacity, cut):
    """What was stored before a kill is what the whole stream plans: only the tail may differ."""
    whole, part = (
        list(plan_shards(stream(lengths), capacity)),
        list(plan_shards(stream(lengths[:cut]), capacity)),
    )
    for shard in part[:-1]:
        same = whole[shard.number - 1]
        assert (same.first_sample, same.last_sample, tokens_sha256(same.samples)) == (
            shard.first_sample,
            shard.last_sample,
            tokens_sha256(shard.samples),
        )


def test_a_stream_of_rejects_is_one_final_shard_without_samples():
    (shard,) = plan_shards(stream([0, 0, 0]), 10)
    assert (shard.first_sample, shard.last_sample, shard.samples, shard.rejected, shard.final) == (
        0,
        2,
        (),
        3,
        True,
    )


def test_an_empty_stream_has_no_shards():
    assert list(plan_shards([], 10)) == []


def test_planning_holds_one_shard_at_a_time():
    taken = []

    def items():
        for index in range(100):
            taken.append(index)
            yield sample(index, 10)

    plans = plan_shards(items(), 30)
    next(plans)
    assert len(taken) == 4


lengths_and_limit = st.integers(1, 4096).flatmap(
    lambda limit: st.tuples(st.lists(st.integers(1, limit), max_size=200), st.just(limit))
)


@given(lengths_and_limit)
def test_every_sample_is_in_one_batch_and_fits_it(case):
    lengths, limit = case
    batches = plan_batches(lengths, limit)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.rows) <= batch.height
        assert max(lengths[row] for row in batch.rows) <= batch.width
        assert batch.height * batch.width <= max(BATCH_TOKENS, batch.width)


@given(lengths_and_limit)
def test_only_the_last_batch_has_dummy_rows(case):
    batches = plan_batches(*case)
    assert all(len(batch.rows) == batch.height for batch in batches[:-1])


@given(lengths_and_limit)
def test_there_are_few_shapes_to_compile(case):
    lengths, limit = case
    widths = {batch.width for batch in plan_batches(lengths, limit)}
    assert len({(b.height, b.width) for b in plan_batches(lengths, limit)}) == len(widths)
    assert all(width % SHORTEST_BATCH_TOKENS == 0 for width in widths)
    assert len(widths) <= 8


@given(lengths_and_limit)
def test_a_plan_is_the_same_every_time(case):
    assert plan_batches(*case) == plan_batches(*case)


def test_tokens_sha256_tells_samples_from_each_other():
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


def test_capacity_is_what_one_gigabyte_holds_of_qwen2_5_0_5b():
    assert capacity_tokens(1_000_000_000, layers=24, d_model=896, itemsize=2) == 23_251
