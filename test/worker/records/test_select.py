"""Selections of tokens: positions, slices, special tokens, and samples that lack the selected tokens."""

import json
import re
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from build import a_spec
from gleaner_worker.records.lines.rejected import Rejected
from gleaner_worker.records.lines.select import Selection, select
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.records.samples.tokenize_lines import make_sample_settings

BOS, EOS = 7, 9
PLAIN, SPECIAL = None, np.array([BOS, EOS], np.int32)
IDS = [BOS, 1, 2, EOS, 3, BOS]  # not special at positions 1, 2 and 4


@pytest.mark.parametrize(
    ("tokens", "special", "ids", "expected"),
    [
        ("all", PLAIN, IDS, None),
        ("mean", PLAIN, IDS, None),
        ("max", PLAIN, IDS, None),
        ("max", SPECIAL, IDS, [1, 2, 4]),
        ("random:9", PLAIN, IDS, [0, 1, 2, 3, 4, 5]),
        ("random:3", SPECIAL, IDS, [1, 2, 4]),
        ("all", SPECIAL, IDS, [1, 2, 4]),
        ("mean", SPECIAL, IDS, [1, 2, 4]),
        ("all", SPECIAL, [1, 2], [0, 1]),
        ("last", PLAIN, IDS, [5]),
        ("last", SPECIAL, IDS, [4]),
        ("last", PLAIN, [1], [0]),
        ((0,), PLAIN, IDS, [0]),
        ((0,), SPECIAL, IDS, [1]),
        ((-1, 0, 2), PLAIN, IDS, [5, 0, 2]),
        ((-1, 0), SPECIAL, IDS, [4, 1]),
        ((5, -6), PLAIN, IDS, [5, 0]),
        ("0:2", PLAIN, IDS, [0, 1]),
        ("0:2", SPECIAL, IDS, [1, 2]),
        ("-2:", SPECIAL, IDS, [2, 4]),
        (":", PLAIN, [1, 2], [0, 1]),
        ("::2", PLAIN, IDS, [0, 2, 4]),
        ("1:-1:3", PLAIN, IDS, [1, 4]),
        ("0:999", PLAIN, [1, 2], [0, 1]),
        ("all", SPECIAL, [BOS], "has only special tokens (1), which exclude_special leaves out"),
        ("last", SPECIAL, [BOS, EOS], "has only special tokens (2)"),
        ("mean", SPECIAL, [BOS, EOS], "has only special tokens (2)"),
        ((20,), PLAIN, list(range(12)), "has 12 tokens: position 20 does not exist (0 to 11, or -12 to -1)"),
        ((-13,), PLAIN, list(range(12)), "has 12 tokens: position -13 does not exist (0 to 11, or -12 to -1)"),
        ((0, 3), SPECIAL, IDS, "has 3 tokens that are not special: position 3 does not exist (0 to 2, or -3 to -1)"),
        ((0, -6), PLAIN, IDS, "has 6 tokens: positions 0 and -6 are the same token"),
        ("6:", PLAIN, IDS, "has 6 tokens: the slice 6: selects none of them"),
        ("3:", SPECIAL, IDS, "has 3 tokens that are not special: the slice 3: selects none of them"),
    ],
)
def test_a_selection_gives_positions_in_the_requested_order_or_a_reason(tokens, special, ids, expected):
    selection, ids = Selection(tokens, special), np.array(ids, np.int32)
    if isinstance(expected, str):
        with pytest.raises(Rejected, match=f"^{re.escape(expected)}"):
            select(selection, ids)
        return
    found = select(selection, ids).positions
    if expected is None:
        assert found is None
    else:
        assert found.dtype == np.int32
        assert found.tolist() == expected


parts = st.integers(-9, 9).map(str) | st.just("")
selections = (
    st.sampled_from(["all", "mean", "last"])
    | st.tuples(parts, parts).map(":".join)
    | st.tuples(parts, parts, st.integers(1, 4).map(str)).map(":".join)
    | st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True).map(tuple)
)


@given(selections, st.booleans(), st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_no_token_is_stored_twice_and_no_special_token_is_stored(tokens, excludes, ids):
    selection = Selection(tokens, SPECIAL if excludes else PLAIN)
    left = [position for position, id in enumerate(ids) if not excludes or id not in (BOS, EOS)]
    if isinstance(tokens, tuple):
        expected = [left[position] for position in tokens if -len(left) <= position < len(left)]
        is_bad = len(set(expected)) < len(tokens)
    else:
        part = {"all": ":", "mean": ":", "last": "-1:"}.get(tokens, tokens).split(":")
        expected = left[slice(*(int(number) if number else None for number in part))]
        is_bad = not expected
    with pytest.raises(Rejected) if is_bad else nullcontext():
        found = select(selection, np.array(ids, np.int32)).positions
        assert (found is None) == (tokens in ("all", "mean") and not excludes)
        assert expected == (left if found is None else found.tolist())


def test_special_tokens_of_the_tokenizer_file_are_excluded_at_any_position(tmp_path, tiny_folder):
    tokenizer = Tokenizer.from_file(f"{tiny_folder}/tokenizer.json")
    tokenizer.add_special_tokens(["<bos>"])
    tokenizer.add_tokens([AddedToken("<not-special>", special=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(name) for name in ("<|endoftext|>", "<bos>", "<not-special>")}
    selection = make_sample_settings(str(tmp_path), a_spec(exclude_special=True), 700, 64).selection
    assert selection.special_ids.tolist() == sorted([ids["<|endoftext|>"], ids["<bos>"]])
    assert make_sample_settings(str(tmp_path), a_spec(), 700, 64).selection.special_ids is None

    stream = tmp_path / "stream"
    stream.write_text(json.dumps({"text": "one<bos> two<not-special><|endoftext|>"}) + "\n")
    (sample,) = read_samples(
        str(stream), "x", make_sample_settings(str(tmp_path), a_spec(exclude_special=True), 700, 64)
    )
    stored = sample.token_ids[sample.positions].tolist()
    assert ids["<not-special>"] in stored
    assert {ids["<bos>"], ids["<|endoftext|>"]}.isdisjoint(stored)
    assert len(stored) == len(sample.token_ids) - 2


def test_selection_counts_the_tokens_after_truncation(tmp_path, tiny_folder):
    stream = tmp_path / "stream"
    stream.write_text(json.dumps({"tokens": list(range(20, 30))}) + "\n")
    spec = a_spec(max_seq_length=6, over_long="truncate", tokens=[-1, 0])
    (sample,) = read_samples(str(stream), "x", make_sample_settings(tiny_folder, spec, 600, 64))
    assert sample.token_ids[sample.positions].tolist() == [25, 20]
    (reject,) = read_samples(str(stream), "x", make_sample_settings(tiny_folder, a_spec(tokens=[10]), 600, 64))
    assert reject.record() == {
        "line": 1,
        "sample_idx": 0,
        "reason": "has 10 tokens: position 10 does not exist (0 to 9, or -10 to -1)",
    }


def test_random_positions_depend_on_the_seed_and_on_the_sample():
    ids = np.arange(1000, dtype=np.int32)

    def chosen(seed=0, index=0, ids=ids):
        found = select(Selection("random:10", None, seed), ids, None, index).positions
        assert found is not None and len(found) == 10 and (np.diff(found) > 0).all()
        return found.tolist()

    assert chosen() == chosen() == [151, 177, 444, 457, 491, 546, 808, 883, 909, 949]
    assert len({str(each) for each in (chosen(), chosen(seed=1), chosen(index=1), chosen(ids=ids + 1))}) == 4
    counts = np.bincount(np.concatenate([chosen(index=index) for index in range(2000)]), minlength=1000)
    assert 0 < counts.min() and counts.max() < 50
