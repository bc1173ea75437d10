"""Descriptions of runs, and errors that name the folder to pass."""

import re

import pytest

import gleaner_reader
from stored_run import store_run


def test_the_repr_of_a_run_a_shard_and_a_layer_states_their_sizes(tmp_path):
    run = gleaner_reader.open(store_run(tmp_path, streams=(0,), shards=2).folder)
    assert repr(run) == f"<Run {tmp_path}: 2 shards of 1 streams>"
    assert re.fullmatch(r"<Shard .*shard_0001\.safetensors, [\d,]+ bytes, safetensors>", repr(run.shards[0]))
    assert re.fullmatch(r"<Layer resid_post\.2 of .*: [\d,]+ rows of 16>", repr(run.layer(2)))
    run.manifest = {
        "spec": {"model": "m", "layers": "0-3", "dtype": "bf16", "sites": ["resid_post"]},
        "result": {"samples": 1200, "rows": 39447},
    }
    assert repr(run).endswith(
        ": 2 shards of 1 streams, 1,200 samples, 39,447 rows, model m, layers 0-3, dtype bf16, sites resid_post>"
    )


def test_the_error_for_a_folder_without_shards_lists_the_content_of_the_folder(tmp_path):
    store_run(tmp_path / "activations" / "my-run")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileNotFoundError, match=r"it has activations/, notes\.txt\. Pass the folder activations/RUN"):
        gleaner_reader.open(tmp_path)
