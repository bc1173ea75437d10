"""Batches of samples of similar length: every sample once, few shapes, little padding."""

from hypothesis import given
from hypothesis import strategies as st

from gleaner_worker.batching import BATCH_TOKENS, batch_shapes, plan_batches

lengths_and_limit = st.integers(1, 4096).flatmap(
    lambda limit: st.tuples(st.lists(st.integers(1, limit), max_size=200), st.just(limit))
)


@given(lengths_and_limit)
def test_every_sample_is_in_one_batch_and_fits_it(case):
    lengths, limit = case
    batches = plan_batches(lengths, limit)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        assert 0 < len(batch.rows) <= batch.height
        assert max(lengths[row] for row in batch.rows) <= batch.width
        assert batch.height * batch.width <= max(BATCH_TOKENS, batch.width)


@given(lengths_and_limit)
def test_only_the_last_batch_has_dummy_rows(case):
    batches = plan_batches(*case)
    assert all(len(batch.rows) == batch.height for batch in batches[:-1])


@given(lengths_and_limit)
def test_the_shapes_are_known_before_and_few(case):
    lengths, limit = case
    shapes = list(batch_shapes(limit))
    assert {(batch.height, batch.width) for batch in plan_batches(lengths, limit)} <= set(shapes)
    assert len(shapes) <= 18 and len({width for _, width in shapes}) == len(shapes)
    assert all(width % 32 == 0 for _, width in shapes)


@given(lengths_and_limit)
def test_the_longest_sample_of_a_batch_is_padded_by_a_third_at_most(case):
    lengths, limit = case
    for batch in plan_batches(lengths, limit):
        longest = max(lengths[row] for row in batch.rows)
        assert batch.width <= max(64, (1.25 if longest > 1024 else 1.5) * longest)


@given(lengths_and_limit)
def test_a_plan_of_batches_is_the_same_every_time(case):
    assert plan_batches(*case) == plan_batches(*case)
