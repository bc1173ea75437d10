"""The values that an extraction stores, and the statistics that it states of them."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from build import BUCKET, a_model, a_stream, a_work, bucket, fails, outputs, run_extract, settings_of, text_lines
from device_rows import rows_of, run
from gleaner_worker.architecture.sites import SITES, TABLE
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.records.samples.sample import Sample
from gleaner_worker.records.samples.samples import read_samples
from gleaner_worker.shards.row_statistics import QUANTILES, ZEROS_EVERY
from read_shards import read_shard, read_stream

pytestmark = pytest.mark.slow


def computed_alone(model, sample):
    """{"site.layer": [vectors, d_model] fp32} of the sample in a row of its own, as it would be stored."""
    computed = run(model, [sample])
    return {
        f"{site}.{layer}": rows_of(computed, site)[position]
        for site in model.sites
        for position, layer in enumerate(model.capture.layers_of(site))
    }


SPECS = [
    {"dtype": "bf16", "format": "safetensors", "layers": [0, 2]},
    {"dtype": "fp32", "format": "safetensors", "sites": ["resid_pre", "mlp_out"], "layers": [0, 2]},
    {
        "dtype": "fp16",
        "format": "safetensors",
        "sites": [site for site in SITES if TABLE[site].where != "mixture"],
        "layers": [1],
    },
    {"dtype": "int8", "format": "safetensors"},
    {"dtype": "int8", "format": "safetensors.zst", "tokens": "mean:regex:[0-9]+ ", "sites": ["resid_mid", "mlp_out"]},
    {"dtype": "bf16", "format": "safetensors.zst", "tokens": "2:20:3", "keep": ["n"]},
    {"dtype": "bf16", "format": "safetensors", "tokens": [3, 0, -1], "exclude_special": True},
    {"dtype": "fp32", "format": "safetensors", "tokens": "last", "keep": ["n", "absent"]},
    {"dtype": "bf16", "format": "safetensors", "tokens": "max"},
    {"dtype": "bf16", "format": "safetensors", "tokens": "max:regex:[0-9]+ ", "exclude_special": True},
    {"dtype": "bf16", "format": "safetensors", "tokens": "random:3"},
    {"dtype": "fp32", "format": "pkl.gz"},
    {"dtype": "fp16", "format": "pkl.gz", "tokens": "-4:", "keep": ["n"], "layers": [0, 2]},
    {"dtype": "fp32", "format": "pkl.gz", "tokens": "mean"},
]


def numbered_lines(count):
    return [json.dumps(json.loads(line) | {"n": number}) for number, line in enumerate(text_lines(count, 10))]


@pytest.mark.sample(1)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(str(value) for value in spec.values()))
def test_every_sample_is_stored_once_with_its_own_activations(storage, tmp_path, tiny_models, tiny_folder, spec):
    selection = {key: spec[key] for key in ("tokens", "exclude_special", "keep") if key in spec}
    spec = spec | {"max_seq_length": 64}
    model = tiny_models(**spec)
    spec["shard_size_gb"] = model.row_bytes * (30 if selection.get("tokens", "all") != "all" else 400) / 1e9
    work = a_work(a_stream(storage, numbered_lines(60)), **spec)
    control = ExtractionState()
    assert run_extract(work, model, str(tmp_path), control) == "completed"
    (tmp_path / "s").write_bytes(storage.data(BUCKET, work.object))
    items = list(read_samples(str(tmp_path / "s"), "s", settings_of(model)))
    samples = {item.index: item for item in items if isinstance(item, Sample)}
    stored = outputs(storage)
    shards = sorted(name for name in stored if name.startswith("shard_"))
    assert len(shards) > 2
    assert set(stored) == {*shards, "metadata.json", "samples.json"} | (
        {"rejects.jsonl"} if len(samples) < 60 else set()
    )
    for shown, (index, sample) in zip(json.loads(stored["samples.json"])["samples"], samples.items(), strict=False):
        assert "".join(shown["tokens"]) == settings_of(model).decode(sample.token_ids.tolist())
        of_pools = None if sample.pools is None else [at for pool in sample.pools for at in range(*pool)]
        rows = of_pools if sample.positions is None else sorted(sample.positions.tolist())
        rows = rows and [at for at in rows if of_pools is None or at in of_pools]
        assert (shown["sample"], shown["line"]) == (index, index + 1)
        assert shown["rows"] == (rows if rows is None or len(rows) < len(sample.token_ids) else None)
    found = read_stream(stored, spec["format"])
    assert list(found) == list(samples) and len(samples) > 40
    progress = control.progress()
    assert (progress["samples_done"], progress["samples_total"]) == (60, 60)
    assert progress["shards_done"] == len(shards)
    assert progress["tokens_done"] == sum(len(sample.token_ids) for sample in samples.values())
    # A stored sample equals the results of the model for the sample alone.
    tolerance = {"fp32": 1e-5, "int8": 4e-2}.get(spec["dtype"], 2e-2)
    for index in (0, 7, 37, 59):
        if index not in samples:
            continue
        kept = {"n": index} if "keep" in spec else None
        check_sample(found[index], samples[index], kept, computed_alone(model, samples[index]), tolerance)


def check_sample(found, sample, kept, alone, tolerance):
    assert found.pop("kept", None) == kept
    if "token_ids" in found:
        assert found.pop("token_ids") == sample.token_ids.tolist()
    if (positions := found.pop("positions", None)) is not None:
        assert positions == sample.positions.tolist()
    found = {name.replace("layer ", "resid_post."): values for name, values in found.items()}
    assert set(found) == set(alone)
    for name, values in found.items():
        assert values.shape == alone[name].shape
        assert np.linalg.norm(values - alone[name]) <= tolerance * np.linalg.norm(alone[name])


@pytest.mark.long
def test_the_statistics_of_shards_and_summary_equal_those_of_the_stored_values(storage, extract):
    for dtype in ("fp32", "int8"):
        spec = {"dtype": dtype, "sites": ["resid_mid", "attn_out"], "shard_size_gb": 1e-4, "max_seq_length": 64}
        exact = {"dtype": "fp32", "compute_dtype": "bf16"} | {key: spec[key] for key in ("sites", "max_seq_length")}
        if dtype == "int8":
            extract(text_lines(60, 10), **exact)
            before_rounding = read_stream(outputs(storage), "safetensors")
            storage.clear("activations/")
        extract(text_lines(60, 10), **spec)
        summary = json.loads(outputs(storage)["metadata.json"])
        assert len(summary["shards"]) > 2
        assert set(summary["stats"]) == {f"{site}.{layer}" for site in spec["sites"] for layer in range(3)}
        parts = [(summary["stats"], read_stream(outputs(storage), "safetensors"))]
        for entry in summary["shards"]:
            samples, inside = read_shard(outputs(storage)[entry["filename"]], "safetensors")
            assert json.loads(inside["stats"]) == entry["stats"]
            parts.append((entry["stats"], samples))
        for stats, samples in parts:
            for name, told in stats.items():
                rows = np.concatenate([sample[name] for sample in samples.values()]).astype(np.float64)
                assert told["mean"] == pytest.approx(rows.mean(), rel=1e-4, abs=1e-6)
                assert told["norm"] == pytest.approx(np.linalg.norm(rows, axis=1).mean(), rel=1e-5)
                assert told["max_abs"] == pytest.approx(np.abs(rows).max(), rel=1e-5)
                assert told["non_finite"] == 0
                places = np.concatenate([np.arange(len(sample[name])) for sample in samples.values()])
                largest = [np.abs(rows[places == 0]).max(), np.abs(rows[places == 1]).max()]
                largest.append(np.abs(rows[(places == 2) | (places == 3)]).max())
                assert told["max_abs_by_position"][:3] == pytest.approx(largest, rel=1e-5)
                assert max(told["max_abs_by_position"]) == told["max_abs"]
                if stats is not summary["stats"]:
                    assert told["zeros"] == pytest.approx((rows[::ZEROS_EVERY] == 0).mean(), rel=1e-6)
                    norms = np.quantile(np.linalg.norm(rows, axis=1), QUANTILES, method="inverted_cdf")
                    assert told["norm_quantiles"] == pytest.approx(norms, rel=1e-5)
                if dtype == "int8":
                    true = np.concatenate([before_rounding[index][name] for index in samples]).astype(np.float64)
                    error = np.linalg.norm(rows - true) / np.linalg.norm(true)
                    assert told["int8_error"] == pytest.approx(error, rel=0.05)
        storage.clear("activations/")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("dtype", "scale", "hint"), [("fp16", 1e6, "bf16 or fp32"), ("bf16", float("nan"), "the model's weights")]
)
def test_a_non_finite_value_fails_the_stream_and_names_the_sample(storage, tmp_path, tiny_folder, dtype, scale, hint):
    """The embedding of one token is changed: the error names the sample with the token, and its shard is not stored."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "embed_tokens" in name)
    tensors[name] = tensors[name].copy()
    tensors[name][599] = scale
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    lines = [json.dumps({"tokens": [1, 2, 3 + number]}) for number in range(40)]
    lines[25] = json.dumps({"tokens": [1, 599, 3]})
    spec = {"model": str(folder), "dtype": dtype, "sites": ["resid_pre"], "shard_size_gb": 20 * 3 * 32 * 2 * 3 / 1e9}
    work = a_work(a_stream(storage, lines), **spec)
    model = a_model(work.spec, str(tmp_path), bucket(), "my-run")
    told = rf"resid_pre.0 has \d vectors that are not finite, .*sample 25; .*{hint}"
    with fails("stream", told):
        run_extract(work, model, str(tmp_path))
    ranges = [storage.metadata(BUCKET, name) for name in storage.names(BUCKET, "activations/my-run/tpu_7/")]
    assert all(int(found["last_sample"]) < 25 for found in ranges)
