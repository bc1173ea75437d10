"""Tokens and layers that a spec asks for."""

import numpy as np
import pytest

from build import a_model, a_spec, fails
from device_rows import run, some_samples
from gleaner_worker.model.program.row_selection import check_token_selection, most_rows, stored_width

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "tokens, length, most",
    [("0:16", 10, 10), ("0:16", 100, 16), ("-8:", 100, 8), ("::3", 10, 4), ("-8:4", 100, 4), ("8:4", 100, 0)],
)
def test_a_slice_selects_at_most_a_known_number_of_tokens(tokens, length, most):
    assert most_rows(a_spec(tokens=tokens).selection, length) == most
    assert stored_width(a_spec(tokens=tokens), 2048, length) == min(2048, 256 * most)


@pytest.mark.parametrize(
    "tokens, says",
    [
        ("8:4", "takes nothing"),
        ("600:", "takes nothing"),
        ([0, 512], "position 512 cannot exist: a sample has at most 512 tokens (0 to 511, or -512 to -1)"),
        ([-513, 600], "positions -513, 600 cannot exist"),
    ],
)
def test_tokens_that_no_sample_has_are_refused(tiny_folder, tokens, says):
    with fails("model") as failure:
        a_model(a_spec(model=tiny_folder, tokens=tokens, max_seq_length=512))
    assert says in failure.value.reason


def test_tokens_that_some_sample_may_have_are_accepted():
    for tokens in ("all", "last", "mean", "511:", "-600:", [511, -512], [0]):
        check_token_selection(a_spec(tokens=tokens), 512)


@pytest.mark.long
def test_only_the_layers_up_to_the_deepest_requested_layer_are_loaded(tiny_models):
    model = tiny_models(layers=[1], max_seq_length=32)
    assert {w.shape[0] for w in model.params["blocks"].values()} == {2}
    np.testing.assert_array_equal(
        run(model, some_samples([9])).rows("resid_post", 0)[0],
        run(tiny_models(max_seq_length=32), some_samples([9])).rows("resid_post", 0)[1],
    )
