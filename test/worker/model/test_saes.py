"""Features are those of SAELens, for each architecture and layout of files; see test/reference/make_sae_golden.py."""

import os

import numpy as np
import pytest

from sae_features import FOLDER, check_features, golden_cases

pytestmark = pytest.mark.slow

with np.load(os.path.join(FOLDER, "expected.npz")) as file:
    FOUND = dict(file)
CASES = golden_cases(FOUND)


@pytest.mark.parametrize("name", CASES)
def test_features_of_each_architecture_and_layout_are_those_of_saelens(tmp_path, name):
    check_features(FOLDER, name, FOUND["x"], CASES[name], tmp_path)
