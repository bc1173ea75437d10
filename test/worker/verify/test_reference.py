"""The drift of stored rows, compared with a reference that computes the samples of a run again."""

import numpy as np
import pytest

import golden_models as golden
from build import TINY_CONFIG, a_stream, a_work, bucket, put_manifest, run_extract, text_lines
from gleaner_reader import Run
from gleaner_worker.architecture.config import parse_config
from gleaner_worker.reference.compare import choose_samples, compare_run
from gleaner_worker.reference.drift import Drift
from host_params import load_params
from verified_run import rewrite

pytestmark = pytest.mark.slow

LENGTH = 64  # of every run: one program for all samples


def in_fp32(folder):
    """The decoder in fp32, which other tests compare with transformers."""
    config = parse_config(TINY_CONFIG, folder)
    weights = load_params(folder, config, config.num_layers, "fp32", folder, golden.capture(config).end)

    def reference(token_ids, names, _top_k):
        padded = np.pad(token_ids, (0, LENGTH - len(token_ids)))[None]
        capture = golden.capture(config)
        found = golden.run(weights, padded, capture)
        return {name: np.asarray(found[name])[0, : len(token_ids)] for name in names}

    return reference


def compared(tmp_path, count=1000):
    return compare_run(bucket(), "my-run", count, str(tmp_path), in_fp32, lambda line: None)


def test_the_drift_of_a_run_is_that_of_its_dtype_and_names_a_row_that_was_changed(stored, tmp_path):
    before = compared(tmp_path)
    assert list(before["drift"]) == ["resid_post.0", "resid_post.1", "resid_post.2"]
    for drift in before["drift"].values():
        assert 1e-4 < drift["relative_error"] < 2e-2 and 0.999 < drift["cosine"] <= 1
        assert drift["worst"]["stream"] == "007" and drift["worst"]["relative_error"] < 0.1

    def change(tensors):
        tensors["resid_post.1"][1] *= 2

    rewrite(stored, "shard_0002.safetensors", change)
    after = compared(tmp_path)
    first = int(stored.metadata("a-bucket", "activations/my-run/tpu_7/shard_0002.safetensors")["first_sample"])
    worst = after["drift"]["resid_post.1"]["worst"]
    assert {key: worst[key] for key in ("sample", "position")} == {"sample": first, "position": 1}
    assert worst["relative_error"] == pytest.approx(1, abs=0.1)
    assert after["drift"]["resid_post.0"] == before["drift"]["resid_post.0"]


def test_rows_of_zeros_have_a_cosine_and_a_finite_error():
    drift = Drift()
    drift.add(np.array([[0], [0], [1e-9]]), np.array([[0], [2], [0]]), "007", 3, np.arange(3))
    worst = {"stream": "007", "sample": 3, "position": 1, "relative_error": 1}
    assert drift.report() == {"relative_error": 1, "cosine": pytest.approx(1 / 3, abs=1e-6), "worst": worst}


@pytest.mark.parametrize("count", [1, 3, 7])
def test_samples_are_chosen_from_all_over_a_run(stored, count):
    from gleaner_reader.format.files import open_folder

    chosen = choose_samples(Run(open_folder("gs://a-bucket/activations/my-run/")), count)
    numbers = chosen[7]
    assert len(numbers) == count
    assert max(np.diff([0, *numbers, 41]), default=0) <= 41 / count + 1


@pytest.mark.long
@pytest.mark.parametrize(
    "spec",
    [
        {"tokens": "mean", "format": "pkl.gz", "dtype": "fp32", "compute_dtype": "fp32"},
        {"tokens": "last", "sites": ["mlp_out", "resid_mid"], "layers": [2], "dtype": "int8"},
        {"tokens": "0:4", "sites": ["top_tokens", "loss"], "dtype": "fp32", "compute_dtype": "fp32"},
        {"tokens": "mean:regex:[0-9]+ ", "exclude_special": True, "dtype": "fp32", "compute_dtype": "fp32"},
    ],
)
def test_means_selected_tokens_and_every_format_are_compared(storage, tmp_path, tiny_models, tiny_folder, spec):
    run_extract(a_work(a_stream(storage, text_lines(9)), **spec), tiny_models(**spec), str(tmp_path))
    put_manifest(storage, model=tiny_folder, **spec)
    found = compared(tmp_path)
    assert found["samples"] == 9 and (found["rows"] == 9) == (":" not in spec["tokens"])
    limit = 1e-5 if spec["dtype"] == "fp32" else 5e-2
    assert all(drift["relative_error"] < limit for drift in found["drift"].values())
    assert {drift["worst"]["position"] is None for drift in found["drift"].values()} == {"mean" in spec["tokens"]}
