"""The golden models of test/worker, made anew: transformers still has the results that the tests compare with."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "worker", "support"))
import make_golden

import golden_models as golden


def test_each_golden_model_is_in_the_table():
    assert sorted(make_golden.MODELS) == golden.NAMES


@pytest.mark.parametrize("name", make_golden.MODELS)
def test_a_golden_model_that_is_made_anew_has_the_same_files_sites_and_tokens(name, tmp_path):
    arrays, facts = make_golden.make(name, str(tmp_path / name))
    for file in (tmp_path / name).iterdir():
        assert file.read_bytes() == (Path(golden.folder(name)) / file.name).read_bytes(), file.name
    assert facts == golden.facts(name)
    stored = golden.expected(name)
    assert sorted(arrays) == sorted(stored)
    for site, values in arrays.items():
        assert np.linalg.norm(values - stored[site]) <= 1e-6 * np.linalg.norm(stored[site]), site
