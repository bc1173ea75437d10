"""Rows: windows of a stream packed into rows, every sample once, and chips that compute little padding."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleaner_worker.model.program.rows import RowLimits, pack, row_length
from gleaner_worker.records.samples.sample import Sample
from gleaner_worker.shards.plan import Capacity, ShardPlan, plan_shards
from gleaner_worker.shards.windows import MAX_WINDOW_BYTES, Window, WindowLimits, plan_windows

LIMITS = RowLimits(64, 8, 40)
sizes = st.lists(st.integers(1, 64).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, min(n, 40)))), max_size=80)


@given(sizes)
def test_every_item_is_in_one_row_within_its_limits(items):
    rows = pack(items, LIMITS)
    assert sorted(index for row in rows for index in row) == list(range(len(items)))
    for row in rows:
        assert row == sorted(row) and len(row) <= LIMITS.samples
        assert sum(items[index][0] for index in row) <= LIMITS.tokens
        assert sum(items[index][1] for index in row) <= LIMITS.vectors
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


@given(st.lists(st.integers(1, 64), max_size=80))
def test_at_most_one_row_is_half_empty(lengths):
    """The limits of samples and vectors are too high to end a row."""
    rows = pack([(n, 1) for n in lengths], RowLimits(64, 10**6, 10**6))
    assert sum(sum(lengths[index] for index in row) <= 32 for row in rows) <= 1


@pytest.mark.parametrize(("length", "expected"), [(1, 2048), (2048, 2048), (2049, 4096), (131_072, 131_072)])
def test_rows_hold_the_longest_sample(length, expected):
    assert row_length(2048, length) == expected


def a_sample(index, length):
    return Sample(index, np.zeros(length, np.int32), None, "", False)


@given(st.lists(st.integers(1, 64), max_size=60), st.integers(1, 300), st.integers(1, 300), st.integers(1, 200))
def test_windows_hold_every_sample_in_order_and_follow_the_plan_of_its_shard(lengths, tokens, vectors, shard_tokens):
    samples = [a_sample(index, length) for index, length in enumerate(lengths)]
    plans = plan_shards(samples, Capacity(shard_tokens * 14 + 16, 10))
    known, found = {}, []
    for item in plan_windows(plans, WindowLimits(tokens, vectors), RowLimits(64, 8, 64), pooled=False):
        if isinstance(item, ShardPlan):
            known[item.number] = item
            continue
        places = sorted((place for row in item.rows for place in row), key=lambda place: place.sample.index)
        assert all(known[place.shard].samples[place.position] is place.sample for place in places)
        total = sum(len(place.sample.token_ids) for place in places)
        assert total <= min(tokens, vectors) or len(places) == 1
        found += [place.sample.index for place in places]
    assert found == list(range(len(lengths)))


# Tokens of each question of GSM8K's test and each training task of ARC-AGI; bench/extraction/prompts.py prints them.
PROMPT_LENGTHS = Path(__file__).parents[1] / "prompt_lengths.jsonl"


@cache
def mixes():
    """Lengths of real prompts, and drawn lengths: short and long prompts, an even spread, web pages (log-normal)."""
    rng = np.random.default_rng(7)
    entries = map(json.loads, PROMPT_LENGTHS.read_text().splitlines())
    real = {name: np.clip(lengths, 1, 2048) for name, lengths in entries}
    # Repeats each data set, so that the last window counts little, as in a stream of 200,000 prompts.
    gsm8k, arc = np.tile(real["GSM8K"], 8), np.tile(real["ARC"], 5)
    return {
        "GSM8K": gsm8k,
        "ARC": arc,
        "both": rng.permutation(np.concatenate([gsm8k, arc])),
        "short": np.clip(rng.lognormal(np.log(50), 0.45, 12_000), 8, 2048).astype(int),
        "long prompts": np.clip(rng.normal(1149, 420, 2_000), 120, 2048).astype(int),
        "even": rng.integers(8, 2049, 2_000),
        "web": np.clip(rng.lognormal(np.log(400), 1.1, 4_000), 8, 2048).astype(int),
    }


MODELS = {"0.5B, 24 layers": 24 * 896 * 2, "0.5B, one layer": 896 * 2, "8B, 32 layers": 32 * 4096 * 2}


def planned(mix, model):
    """(tokens of the mix, rows of its windows, vectors of a window)."""
    row_bytes, lengths = MODELS[model], mixes()[mix]
    samples = [a_sample(index, int(length)) for index, length in enumerate(lengths)]
    window = WindowLimits(65_536, MAX_WINDOW_BYTES // row_bytes)
    plan = plan_windows(plan_shards(samples, Capacity(10**9, row_bytes)), window, RowLimits(2048, 256, 2048), False)
    return int(lengths.sum()), sum(len(item.rows) for item in plan if isinstance(item, Window)), window.vectors


@pytest.mark.sample(5)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mix", mixes())
def test_most_of_the_computed_tokens_are_real(mix, model):
    tokens, rows, vectors = planned(mix, model)
    for chips in (1, 4, 8):
        steps = -(-rows // chips)
        assert tokens / (steps * chips * 2048) >= (0.85 if vectors >= 32_768 else 0.80), chips
