"""Partials: the samples that a preempted worker saved, used where they fit."""

import json

import numpy as np
import pytest
import safetensors.numpy

from build import BUCKET, a_stream, outputs, text_lines
from interruption import PARTIALS
from read_shards import load_tensors

pytestmark = pytest.mark.slow

SPECS = [
    {},
    {"dtype": "int8", "tokens": "mean", "sites": ["resid_pre", "mlp_out"]},
    {
        "dtype": "int8",
        "format": "safetensors.zst",
        "keep": ["text"],
        "tokens": "mean:regex:[0-9]+|apples",
        "mask": "regex:cost",
    },
    {"dtype": "fp32", "format": "pkl.gz"},
    {"dtype": "fp16", "tokens": "::2"},
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_preempted_shard_continues_and_has_the_same_bytes(storage, interrupted, clean, spec):
    resource = a_stream(storage, text_lines(300))
    uninterrupted = interrupted(resource, **spec)
    expected = outputs(storage)
    clean()
    computed, samples = 0, 0
    for epoch in range(1, 20):
        interruption = interrupted(resource, samples=35, epoch=epoch, **spec)
        computed += interruption.done
        assert interruption.control.progress()["samples_done"] >= samples  # restored samples count
        samples = interruption.control.progress()["samples_done"]
        if interruption.outcome == "completed":
            break
        assert interruption.outcome == "preempted"
        assert any(f".e{epoch}." in name for name in storage.names(BUCKET, f"{PARTIALS}shard_0001."))
    assert epoch > 2
    assert outputs(storage) == expected
    assert computed == uninterrupted.done  # no sample was stored twice
    saved = [sample for name in storage.names(BUCKET, PARTIALS) for sample in samples_of(storage, name)]
    assert len(saved) == len(set(saved)) > 0  # nor saved twice


def samples_of(storage, name):
    return [(storage.metadata(BUCKET, name)["shard"], s) for s in load_tensors(storage.data(BUCKET, name))["samples"]]


def spoil(storage, name, how):
    data, metadata = storage.data(BUCKET, name), storage.metadata(BUCKET, name)
    match how:
        case "cut":
            storage.put(BUCKET, name, data[:-10], metadata)
        case "empty":
            storage.put(BUCKET, name, b"", metadata)
        case "huge":
            storage.put(BUCKET, name, data + bytes(2 << 20), metadata)
        case "other rows" | "no scale" | "other dtype" | "other samples" | "impossible samples" | "samples twice":
            tensors = load_tensors(data)
            samples = tensors["samples"]
            if how == "other samples":
                tensors["samples"] = samples[:-1]
            elif how == "impossible samples":
                tensors["samples"] = samples + 10**6
            elif how == "samples twice":
                tensors["samples"] = np.repeat(samples[:1], len(samples))
            elif how == "other rows":
                tensors["rows.resid_post"] = tensors["rows.resid_post"][:, :-1]
            elif how == "no scale":
                del tensors["scale.resid_post"]
            else:
                tensors["rows.resid_post"] = tensors["rows.resid_post"].astype(np.uint8)
            storage.put(BUCKET, name, safetensors.numpy.save(tensors), metadata)
        case key:
            metadata[key] = "other"


DAMAGE = (
    "cut, empty, huge, other rows, no scale, other dtype, program, other samples, impossible samples, samples twice"
)
FACTS = "tokens_sha256, rows, model_fingerprint"


@pytest.mark.sample(2)  # "cut" and "program"
@pytest.mark.parametrize("damage", DAMAGE.split(", "))
def test_a_damaged_or_mismatched_partial_is_ignored(storage, interrupted, clean, damage):
    resource = a_stream(storage, text_lines(80))
    spec = {"dtype": "int8"}
    uninterrupted = interrupted(resource, **spec)
    expected = outputs(storage)
    clean()
    assert interrupted(resource, samples=35, **spec).outcome == "preempted"
    for name in storage.names(BUCKET, PARTIALS):
        spoil(storage, name, damage)
    second = interrupted(resource, epoch=2, **spec)
    assert (second.outcome, second.done) == ("completed", uninterrupted.done)
    assert outputs(storage) == expected


@pytest.mark.long
def test_only_the_samples_of_a_lost_partial_are_computed_again(storage, interrupted, monkeypatch, clean):
    """The second worker uses every other partial of the first worker."""
    monkeypatch.setattr("gleaner_worker.shards.partial._PART_BYTES", 1)
    resource = a_stream(storage, text_lines(300))
    uninterrupted = interrupted(resource)
    expected = outputs(storage)
    clean()
    first = interrupted(resource, samples=15)
    names = storage.names(BUCKET, PARTIALS)
    assert len(names) == first.done  # one sample in each partial
    storage.delete(BUCKET, names[1])
    second = interrupted(resource, epoch=2)
    assert second.done == uninterrupted.done - first.done + 1
    assert outputs(storage) == expected
    assert json.loads(expected["metadata.json"])["total_samples"] == 300
