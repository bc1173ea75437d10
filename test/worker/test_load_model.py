"""Models and specs that an extraction is asked for: found and copied, loaded layer by layer, or refused."""

import os
import weakref

import pytest

from build import (
    BUCKET,
    a_model,
    a_spec,
    a_stream,
    a_work,
    bucket,
    text_lines,
)
from gleaner_worker.failures import Failure
from gleaner_worker.model.weights import Weights

pytestmark = pytest.mark.slow


def test_a_model_in_a_bucket_is_copied_once(storage, tmp_path, tiny_folder):
    for name in os.listdir(tiny_folder):
        with open(os.path.join(tiny_folder, name), "rb") as file:
            storage.put(BUCKET, f"models/tiny/{name}", file.read())
    storage.put(BUCKET, "models/tiny/pytorch_model.bin", b"pickled")
    work = a_work(a_stream(storage, text_lines(3)), model=f"gs://{BUCKET}/models/tiny/")
    model = a_model(work.spec, str(tmp_path), bucket())
    assert not any("pytorch_model" in request for request in storage.requests if "alt=media" in request)
    downloads = sum("alt=media" in request for request in storage.requests)
    assert a_model(work.spec, str(tmp_path), bucket()).fingerprint == model.fingerprint
    assert sum("alt=media" in request for request in storage.requests) == downloads
    local = a_model(a_work(a_stream(storage, text_lines(3)), model=tiny_folder).spec, str(tmp_path), bucket())
    assert local.fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("/no/such/folder", "there is no such folder on this machine"),
        ("gs://a-bucket/models/absent", "there is no model folder of that name"),
        ("gs://a-bucket/models/half", "it has no config.json"),
    ],
)
def test_a_missing_model_is_named(storage, tmp_path, model, reason):
    storage.put(BUCKET, "models/half/tokenizer.json", b"{}")
    with pytest.raises(Failure, match=f"the model {model}.*({reason})") as failure:
        a_model(a_work(a_stream(storage, text_lines(3)), model=model).spec, str(tmp_path), bucket())
    assert failure.value.kind == "model"


@pytest.mark.parametrize(
    "change",
    [{"sites": ["logits"]}, {"tokens": "first"}, {"dtype": "int4"}, {"format": "zarr"}, {"over_long": "cut"}],
)
def test_an_unsupported_spec_is_refused(storage, change):
    with pytest.raises(Failure, match=next(iter(change))) as failure:
        a_work(a_stream(storage, text_lines(3)), **change)
    assert failure.value.kind == "model"


def test_the_host_holds_two_layers_at_most(monkeypatch, tiny_folder):
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


def test_damaged_weights_cost_no_compilation(model_folder):
    path = model_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    phases = []
    with pytest.raises(Failure, match="Failed to read model.safetensors"):
        a_model(a_spec(model=str(model_folder)), phase=phases.append)
    assert phases == []
