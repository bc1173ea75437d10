"""Rows that batches leave out: by token, by position and by norm."""

import numpy as np
import pytest

from shuffled_runs import as_rows, as_set


@pytest.mark.parametrize("tokens", ["all", slice(1, 12, 2)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_rows_of_excluded_token_ids_and_positions_are_left_out(runs, tokens, masked):
    run, stored = runs(tokens=tokens, masked=True)
    excluded = {3, 9, 60}
    expected = []
    for sample in stored.samples.values():
        for row, position in zip(sample["activations"]["resid_post.0"], sample["positions"], strict=True):
            is_marked = position % 2 == 1
            if position != 1 and int(sample["token_ids"][position]) not in excluded and (is_marked or not masked):
                expected.append(row.tobytes())
    options = {"exclude_ids": excluded, "exclude_positions": [1], "masked": masked}
    batches = run.batches(0, batch_rows=16, buffer_rows=100, drop_last=False, dtype="float32", **options)
    assert sorted(row.tobytes() for batch in batches for row in batch) == sorted(expected)
    assert 0 < len(expected) < len(stored.rows("resid_post.0"))


def test_rows_with_an_unusual_norm_are_left_out(runs, tmp_path):
    run, stored = runs(dtype="fp32")
    rows = stored.rows("resid_post.0")
    norms = np.linalg.norm(rows, axis=1)
    kept = rows[norms <= 1.25 * np.median(norms)]
    batches = as_rows(run.batches(0, batch_rows=16, drop_last=False, max_norm_multiple=1.25))
    assert as_set(np.concatenate(batches)) == as_set(kept)
    assert 0 < len(kept) < len(rows)


@pytest.mark.parametrize(
    ("options", "more", "says"),
    [
        ({"tokens": "mean"}, {"exclude_ids": [1]}, "exclude_ids needs the token id of each row"),
        ({"tokens": "mean"}, {"exclude_positions": [0]}, "exclude_positions needs one token for each row"),
        (
            {"file_format": "pkl.gz", "dtype": "fp32"},
            {"exclude_ids": [1]},
            "exclude_ids needs the token id of each row",
        ),
        ({}, {"masked": True}, "masked needs the mask of each row"),
        ({}, {"batch_rows": 0}, "batch_rows is 0"),
        ({}, {"buffer_rows": 10}, "buffer_rows 10"),
        ({}, {"batch_rows": 100_000}, "no batch of 100000 rows can be made"),
        ({}, {"exclude_positions": range(100), "drop_last": False, "epochs": None}, "no batch of 16 rows can be made"),
    ],
)
def test_an_impossible_filter_or_batch_is_refused_with_the_reason(runs, options, more, says):
    run, _ = runs(**options)
    with pytest.raises(ValueError, match=says):
        next(run.batches(0, **({"batch_rows": 16} | more)))
