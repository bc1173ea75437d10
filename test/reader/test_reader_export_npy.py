"""One layer of a run as numpy files: the rows, and the stream, sample, position and token of each."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import gleaner_reader
from gleaner_reader.export import to_npy
from stored_run import store_run


def load(folder, name):
    return np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r")


@pytest.mark.parametrize(
    ("file_format", "dtype", "tokens"),
    [("safetensors", "bf16", "all"), ("safetensors.zst", "int8", "all"), ("safetensors", "fp32", "spans")],
)
def test_every_exported_row_has_its_stream_sample_position_and_token(tmp_path, file_format, dtype, tokens):
    sites, masked = ("resid_post", "mlp_out"), dtype != "int8"
    stored = store_run(tmp_path / "run", file_format, dtype, tokens=tokens, sites=sites, masked=masked, keep=True)
    run = gleaner_reader.open(stored.folder)
    out = tmp_path / "out"
    export = to_npy(run, str(out), 2, "mlp_out")
    values, streams, samples = load(out, "activations"), load(out, "stream"), load(out, "sample_idx")
    assert values.shape == (run.num_rows, run.widths["mlp_out"]) and values.dtype == np.float32
    np.testing.assert_array_equal(values, np.concatenate(list(run.layer(2, "mlp_out", dtype="float32"))))
    for (stream, index), sample in stored.samples.items():
        here = (streams == stream) & (samples == index)
        assert here.sum() == len(sample["activations"]["mlp_out.2"])
        if tokens == "all":
            np.testing.assert_array_equal(load(out, "token_id")[here], sample["token_ids"])
            np.testing.assert_array_equal(load(out, "position")[here], sample["positions"])
        else:
            assert load(out, "span_idx")[here].tolist() == run.sample(stream, index).span_idx.tolist() == [0, 2]
        mask = run.sample(stream, index).mask
        assert mask.tolist() == [n % 2 for n in range(len(mask))] if masked else mask is None
        assert "mask" not in export.files or load(out, "mask")[here].tolist() == mask.tolist()
    assert [("token_id" in export.files), ("mask" in export.files)] == [tokens == "all", tokens == "all" and masked]
    assert json.loads((out / "export.json").read_text())["rows"] == run.num_rows
    lines = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == export.samples == len(stored.samples)
    for line, ((stream, index), sample) in zip(lines, stored.samples.items(), strict=True):
        here = np.arange(*line["rows"])
        assert (line["stream"], line["sample"], line["kept"]) == (stream, index, sample["kept"])
        assert np.array_equal(values[here], sample["activations"]["mlp_out.2"])


def test_an_export_of_a_run_with_two_sites_needs_a_site(tmp_path):
    run = gleaner_reader.open(store_run(tmp_path / "run", sites=("resid_post", "mlp_out")).folder)
    with pytest.raises(ValueError, match="site"):
        to_npy(run, str(tmp_path / "out"), 2)
    assert not (tmp_path / "out").exists()


def test_an_export_into_an_existing_folder_is_refused(tmp_path):
    stored = store_run(tmp_path / "run")
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="choose another folder"):
        to_npy(gleaner_reader.open(stored.folder), str(tmp_path / "out"), 2)


@pytest.mark.slow
def test_the_export_command_prints_json_or_an_error_of_one_line(tmp_path):
    stored = store_run(tmp_path / "run", sites=("resid_pre", "resid_post"))

    def export(*options):
        command = [sys.executable, "-m", "gleaner_reader.export", stored.folder, "--output", str(tmp_path / "out")]
        return subprocess.run([*command, *options], capture_output=True, text=True, env=os.environ, check=False)

    for options, says in [
        (("--layer", "5", "--site", "resid_post"), "has layers 0, 2"),
        (("--layer", "2"), "pass one of them, such as --site resid_pre"),
    ]:
        failed = export(*options)
        assert failed.returncode == 1 and says in failed.stderr and failed.stderr.count("\n") == 1
    done = export("--layer", "2", "--site", "resid_post", "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["to"], facts["dtype"]) == ("numpy", "float16") and load(
        tmp_path / "out", "activations"
    ).dtype == np.float16
