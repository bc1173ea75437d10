"""Models of an extraction: loaded layer by layer, or refused."""

import json
import os
import re
import shutil
import weakref
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from build import BUCKET, a_model, a_spec, bucket, fails
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model.model import find_files, load_model
from gleaner_worker.model.weights.weights import Weights
from model_folders import GS, downloads, upload

pytestmark = pytest.mark.slow


def test_the_host_holds_at_most_two_layers_of_weights(monkeypatch, tiny_folder):
    read, held, most = Weights.layer, [], []

    def layer(weights, number):
        made = read(weights, number)
        held.append([weakref.ref(array) for array in made.values()])
        most.append(sum(any(array() is not None for array in arrays) for arrays in held))
        return made

    monkeypatch.setattr(Weights, "layer", layer)
    model = a_model(a_spec(model=tiny_folder))
    assert len(most) == model.config.num_layers > 2
    assert max(most) <= 2


def test_each_byte_of_weights_in_a_bucket_is_read_once_on_its_way_to_the_devices(storage, tmp_path, tiny_folder):
    upload(storage, Path(tiny_folder))
    spec = a_spec(model=GS)
    files = find_files(spec, str(tmp_path), bucket(), "my-run")
    assert "model.safetensors" not in downloads(storage)
    storage.ranges.clear()
    here, there = a_model(a_spec(model=tiny_folder)), load_model(spec, files)
    ranges = sorted(storage.ranges)
    assert all(end < begin for (_, end), (begin, _) in pairwise(ranges))
    data = storage.data(BUCKET, "models/tiny/model.safetensors")
    begin, end = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["model.norm.weight"]["data_offsets"]
    assert sum(last + 1 - first for first, last in ranges) == len(data) - (end - begin)  # no site needs the last norm
    assert jax.tree.all(jax.tree.map(np.array_equal, here.params, there.params))
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if "safetensors" in name]


def test_a_head_beside_other_embeddings_takes_memory_where_a_run_needs_it(tmp_path, tiny_folder):
    def weights_gb(folder, site):
        with fails("model") as failure:
            a_model(a_spec(model=str(folder), sites=[site]), device_bytes=1000)
        return float(re.search(r"its weights are (\S+) GB", failure.value.reason)[1])

    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    head = np.zeros_like(tensors["model.embed_tokens.weight"])
    save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors")
    assert weights_gb(folder, "resid_post") == weights_gb(tiny_folder, "resid_post")
    more = weights_gb(folder, "loss") - weights_gb(tiny_folder, "loss")
    assert more == pytest.approx(head.nbytes / 1e9, rel=0.02)


def test_weights_that_are_replaced_after_the_model_was_opened_are_refused(storage, tmp_path, tiny_folder):
    upload(storage, Path(tiny_folder))
    spec = a_spec(model=GS)
    files = find_files(spec, str(tmp_path), bucket())
    storage.put(BUCKET, "models/tiny/model.safetensors", storage.data(BUCKET, "models/tiny/model.safetensors"))
    with pytest.raises(Failure, match="gs://a-bucket/models/tiny/model.safetensors: it was replaced or deleted after"):
        load_model(spec, files)


def test_a_lost_lease_ends_the_reading_of_weights(storage, tmp_path, tiny_folder):
    upload(storage, Path(tiny_folder))
    spec, is_lost = a_spec(model=GS), []

    def check():
        if is_lost:
            raise LeaseLost

    files = find_files(spec, str(tmp_path), bucket(check))
    with pytest.raises(LeaseLost):
        load_model(spec, files, phase=lambda name: is_lost.append(0) if name == "loading" else None)


def test_damaged_weights_are_refused_before_the_compilation(model_folder):
    path = model_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    phases = []
    with pytest.raises(Failure, match="Failed to read model.safetensors"):
        a_model(a_spec(model=str(model_folder)), phase=phases.append)
    assert phases == []
