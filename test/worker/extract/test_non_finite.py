"""Values that are not finite: found where they begin, and only in the samples that have them."""

from types import SimpleNamespace

import numpy as np
import pytest

from device_rows import a_sample, rows_of, run

pytestmark = pytest.mark.slow


def with_embedding(model, token, value):
    """The model, with every number of one token's embedding set to `value`."""
    embed = model.params["embed"]
    return SimpleNamespace(
        run=lambda samples: _start_with(model, {**model.params, "embed": embed.at[token].set(value)}, samples)
    )


def _start_with(model, params, samples):
    from dataclasses import replace

    return run(replace(model, params=params), samples)


@pytest.mark.sample(2)  # NaN in bf16, and infinity in int8
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(np.nan, "bf16"), (np.nan, "fp32"), (np.inf, "bf16"), (np.inf, "int8"), (np.nan, "int8"), (np.inf, "fp32")],
)
def test_a_value_that_is_not_finite_is_found_at_its_origin(capture_models, dtype, value):
    samples = [a_sample([1, 2, 3]), a_sample([4, 5, 9, 6]), a_sample([1, 9])]
    host = with_embedding(capture_models(dtype=dtype), 9, value).run(samples)
    assert host.host.non_finite() == ("resid_pre", 0, 1, 2)  # in block 0, first in sample 1, in two rows
    assert host.host.sums(range(3))["resid_pre"][0, :, 3].tolist() == [0, 1, 1]


def test_a_non_finite_token_outside_of_all_samples_changes_no_sample(capture_models):
    """Token 0 fills the rows of a step without a sample. Padding repeats a token of its own row, because padding has a
    weight of 0 in attention, and 0 times infinity is NaN."""
    for tokens in ("all", "mean"):
        host = with_embedding(capture_models(tokens=tokens), 0, np.inf).run([a_sample([1, 2, 3])])
        assert host.host.non_finite() is None
        assert np.isfinite(rows_of(host, "resid_post")).all()


def test_values_beyond_fp16_are_not_finite(capture_models):
    samples = [a_sample([1, 9])]
    assert with_embedding(capture_models(dtype="bf16"), 9, 1e5).run(samples).host.non_finite() is None
    assert with_embedding(capture_models(dtype="fp16"), 9, 1e5).run(samples).host.non_finite() == ("resid_pre", 0, 0, 1)


def test_a_row_of_zeros_is_stored_as_zeros_in_int8(capture_models):
    host = with_embedding(capture_models(dtype="int8"), 9, 0.0).run([a_sample([9])])
    assert not host.rows("resid_pre", 0)[0].any() and host.host.non_finite() is None
    assert np.isfinite(host.host.sums([0])["resid_pre"]).all()
