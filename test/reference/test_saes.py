"""Features of random autoencoders of every architecture and layout, beside SAELens itself."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "worker", "support")]
import environment  # noqa: E402, F401  where the packages are

torch = pytest.importorskip("torch")

from make_sae_golden import make  # noqa: E402

from sae_features import check_features, dense_of, encode, golden_cases, open_features  # noqa: E402

SAES = {"seed": 100, "d_sae": 200, "vectors": 32}
LEAST_OVERLAP = 0.97  # of the features in bf16 with those of SAELens in fp32, on average over vectors


def test_features_are_those_of_saelens_and_mostly_those_in_bf16(tmp_path):
    """Prints the overlap in bf16, the features that both have of those that one has; beside it that of SAELens."""
    found, theirs = make(f"{tmp_path}/fp32", **SAES), make(f"{tmp_path}/bf16", **SAES, dtype=torch.bfloat16)
    print("\n| autoencoder | here | SAELens |\n|---|---|---|")
    for name, cases in golden_cases(found).items():
        check_features(f"{tmp_path}/fp32", name, found["x"], cases, tmp_path)
        changes, wanted = next(iter(cases.items()))
        opened = open_features(f"{tmp_path}/fp32", path=name, k=None if name == "topk" else 200, dtype="bf16")
        values, ids, _ = encode(opened, found["x"], "bf16")
        here = overlap(dense_of(values, ids, 200), wanted)
        print(f"| {name} | {here:.3f} | {overlap(theirs[f'{name} {changes}'], wanted):.3f} |")
        assert here > LEAST_OVERLAP, name


def overlap(one, other):
    return (((one > 0) & (other > 0)).sum(axis=1) / ((one > 0) | (other > 0)).sum(axis=1)).mean()
