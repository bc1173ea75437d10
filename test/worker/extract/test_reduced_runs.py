"""Runs with features, projections and moments: from any source of files, verified, interrupted, and damaged."""

import json
import signal
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from build import (
    BUCKET,
    a_model,
    a_spec,
    a_stream,
    a_work,
    a_work_answer,
    bucket,
    fails,
    outputs,
    put_manifest,
    run_extract,
    shard_gb,
    text_lines,
)
from encoded_shards import parse_tensors
from fake_storage import serving
from gleaner_worker.model.files.hub import Hub
from gleaner_worker.model.files.model_lock import find_run_model
from gleaner_worker.model.model import find_files, load_model
from hub_models import REPO
from interruption import PARTIALS
from read_shards import load_tensors
from sae_folders import D_SAE, put_saes, reduced
from verified_run import PREFIX, rewrite

pytestmark = pytest.mark.slow

LINES = text_lines(40)
SHARD = "shard_0001.safetensors"
DENSE = {"sites": ["resid_post"], "shard_size_gb": 2 * shard_gb(400)}


@pytest.fixture(scope="module")
def reduced_run(tmp_path_factory, tiny_models, tiny_folder, sae_folder):
    """(the bucket of a finished run, its spec). No test changes it."""
    spec = reduced(sae_folder, **DENSE)
    with serving() as storage:
        run_extract(a_work(a_stream(storage, LINES), **spec), tiny_models(**spec), str(tmp_path_factory.mktemp("run")))
        put_manifest(storage, model=tiny_folder, **spec)
    return storage, spec


@pytest.fixture
def stored(storage, reduced_run):
    storage.load(reduced_run[0])
    return storage


def tensors_of(storage):
    """The tensors of each shard, as bytes. The header names the weights, which differ by their source."""
    return {
        name: {key: values.tobytes() for key, values in load_tensors(data).items()}
        for name, data in outputs(storage).items()
        if name.startswith("shard_")
    }


def described(storage):
    return json.loads(parse_tensors(storage.data(BUCKET, PREFIX + SHARD))[1]["outputs"])


def test_stored_reductions_are_those_of_the_stored_rows(stored, sae_folder, verify):
    report, problems = verify()
    assert report["ok"], problems
    found = load_tensors(stored.data(BUCKET, PREFIX + SHARD))
    probes = load_file(f"{sae_folder}/probes.safetensors")
    offsets = found["sample_offsets"][:-1]
    for layer in range(3):
        sae, x = load_file(f"{sae_folder}/layer_{layer}/sae_weights.safetensors"), found[f"resid_post.{layer}"]
        assert x.dtype == ml_dtypes.bfloat16
        x, matrix = x.astype(np.float64), sae["W_enc"].astype(ml_dtypes.bfloat16).astype(np.float64)
        hidden = np.maximum((x - sae["b_dec"]) @ matrix + sae["b_enc"], 0)
        order = np.argsort(-hidden, axis=1, kind="stable")[:, :8]
        assert (found[f"scope_ids.{layer}"] == order).mean() > 0.999
        values = np.take_along_axis(hidden, order, axis=1)
        np.testing.assert_allclose(found[f"scope.{layer}"].astype(np.float64), values, rtol=0.01)
        assert np.array_equal(found[f"scope_active.{layer}"][:, 0], (hidden > 0).sum(axis=1))
        if layer == 1:
            np.testing.assert_allclose(found["probe.1"], x @ probes["1"].T, rtol=1e-4, atol=1e-4)
            assert "resid_post.1.sum" not in found
        else:
            for name, power in (("sum", 1), ("squares", 2)):
                wanted = np.add.reduceat(x**power, offsets, axis=0)
                np.testing.assert_allclose(found[f"resid_post.{layer}.{name}"], wanted, rtol=1e-4, atol=1e-4)
    facts = described(stored)
    assert facts["scope"] | {"digest": None} == {
        **{"kind": "features", "site": "resid_post", "layers": [0, 1, 2], "k": 8, "d_sae": D_SAE, "norm": "none"},
        **{"architecture": "standard", "weights": sae_folder, "revision": None, "digest": None},
    }
    assert facts["probe"]["kind"] == "project" and facts["moments"]["layers"] == [0, 2]


def test_a_run_without_reductions_describes_none(finished_run):
    _, metadata = parse_tensors(finished_run.data(BUCKET, PREFIX + SHARD))
    assert "outputs" not in metadata and not any("scope" in text for text in metadata.values())


@pytest.mark.parametrize("source", ["bucket", "hub"])
def test_weights_of_a_bucket_and_of_a_hub_give_the_tensors_of_a_folder(
    storage, reduced_run, tiny_folder, sae_folder, tmp_path, hub, source
):
    files = {str(path.relative_to(sae_folder)): path for path in Path(sae_folder).rglob("*.*") if path.is_file()}
    weights, commit = f"gs://{BUCKET}/saes", None
    if source == "bucket":
        for name, path in files.items():
            storage.put(BUCKET, f"saes/{name}", path.read_bytes())
    else:
        kept = {name: path.read_bytes() for name, path in files.items()}
        weights, commit = REPO, hub.put(REPO, kept | {"layer_0/other.safetensors": b"never read"})
    spec = reduced(weights, **DENSE)
    if source == "hub":
        spec["project"] = [spec["project"][0] | {"weights": REPO, "path": "probes.safetensors"}]
    work = a_work(a_stream(storage, LINES), model=tiny_folder, **spec)
    where = Hub(hub.url(), lambda check: None, lambda cause: None)
    model = load_model(work.spec, find_files(work.spec, str(tmp_path), bucket(), hub=where))
    run_extract(work, model, str(tmp_path))
    assert tensors_of(storage) == tensors_of(reduced_run[0])
    assert (described(storage)["scope"]["weights"], described(storage)["scope"]["revision"]) == (weights, commit)
    assert not any("other" in path for path in hub.asked("cdn"))


@pytest.mark.parametrize(
    "spec", [{"sites": [], "moments": {}}, {"sites": [], "project": True, "tokens": "mean"}], ids=["moments", "means"]
)
def test_a_run_of_moments_alone_and_one_of_projected_means_are_verified(
    storage, extract, verify, tiny_folder, sae_folder, spec
):
    spec = spec | ({"project": reduced(sae_folder)["project"]} if "project" in spec else {})
    extract(LINES, **spec)
    put_manifest(storage, model=tiny_folder, **spec)
    report, problems = verify()
    assert report["ok"] and report["stored_once"] == len(LINES), problems
    names = set(load_tensors(storage.data(BUCKET, PREFIX + SHARD)))
    sums = {f"resid_post.{layer}.{kind}" for layer in range(3) for kind in ("sum", "squares")}
    assert {name for name in names if "." in name} == (sums if "moments" in spec else {"probe.1"})


def put(name, place, value):
    def change(tensors):
        tensors[name][place] = value

    return change


def pad(tensors):
    tensors["scope_ids.0"][0, 3], tensors["scope.0"][0, 3] = -1, 0


def repeat(tensors):
    tensors["scope_ids.1"][0, 1] = tensors["scope_ids.1"][0, 0]


def ascend(tensors):
    tensors["scope.2"][0] = tensors["scope.2"][0, ::-1]


def grow(name, factor):
    def change(tensors):
        tensors[name] *= factor

    return change


# Each round has one damage of each output: (the problem that is found, the damage).
DAMAGES = [
    [
        ("padding before a feature, or with a value of scope.0", pad),
        ("rows with an id twice of scope.1", repeat),
        ("values that do not descend to zero of scope.2", ascend),
        ("moments of resid_post.0 that are not those of its rows", grow("resid_post.0.sum", 0.9)),
        ("moments of resid_post.2 that are not those of its rows", grow("resid_post.2.squares", 1.1)),
    ],
    [
        ("ids outside of 0 to 59 of scope.0", put("scope_ids.0", (0, 0), D_SAE)),
        ("padding before a feature, or with a value of scope.1", put("scope_ids.1", (0, 7), -1)),
        ("numbers of active features that contradict the ids of scope.2", put("scope_active.2", (0, 0), 3)),
        ("moments of resid_post.0 whose squares are too small", grow("resid_post.0.squares", 0.5)),
        ("moments of resid_post.2 that are not finite", put("resid_post.2.sum", (0, 0), np.inf)),
    ],
    [
        ("values that do not descend to zero of scope.0", put("scope.0", (0, 7), -1)),
        ("ids outside of 0 to 59 of scope.1", put("scope_ids.1", (0, 7), -2)),
        ("wrong statistics (l0", put("scope_active.2", (0, 0), D_SAE)),
    ],
]


def test_every_damage_of_a_reduction_is_found(stored, reduced_run, finds):
    facts = described(stored)
    wrong = [facts | {"scope": facts["scope"] | {"d_sae": 61}}, facts | {"more": {}}, [1]]
    for damages, described_as in zip(DAMAGES, wrong, strict=True):
        stored.load(reduced_run[0])

        def change(tensors, damages=damages):
            for _, damage in damages:
                damage(tensors)

        rewrite(stored, SHARD, change, {"outputs": json.dumps(described_as)}, signed=True)
        finds("otherwise than the spec and its files", *(problem for problem, _ in damages))


def test_an_interrupted_and_killed_run_stores_the_same_bytes(
    storage, reduced_run, interrupted, forks, tiny_folder, tmp_path
):
    stored, spec = reduced_run
    resource, expected = a_stream(storage, LINES), outputs(stored)
    assert interrupted(resource, samples=12, **spec).outcome == "preempted"
    saved = load_tensors(storage.data(BUCKET, storage.names(BUCKET, PARTIALS)[0]))
    assert {"rows.scope_ids", "row_stats.scope", "moments.resid_post.sum"} <= saved.keys()
    answer = a_work_answer(resource, epoch=2, model=tiny_folder, **spec)
    ended = forks.run("extract_process:run", answer, str(tmp_path), "extract.extract:encode_shard", 2)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert len(outputs(storage)) < len(expected)
    last = interrupted(resource, epoch=3, **spec)
    assert last.outcome == "completed" and last.done < len(LINES)
    assert outputs(storage) == expected


def test_partials_and_locks_of_other_weights_are_not_used(storage, interrupted, tiny_folder, tmp_path):
    put_saes(tmp_path / "saes")
    spec = reduced(str(tmp_path / "saes"), **DENSE)
    whole = a_spec(model=tiny_folder, **spec)
    resource = a_stream(storage, LINES)
    find_run_model(whole, "my-run", str(tmp_path), bucket())
    assert interrupted(resource, samples=12, model=a_model(whole), **spec).outcome == "preempted"
    put_saes(tmp_path / "saes", seed=1)
    named = "scope/layer_0/sae_weights.safetensors has sha256 .*, and had sha256 .*restore that model"
    with fails("model", f"Failed to resume my-run.*{named}"):
        find_run_model(whole, "my-run", str(tmp_path), bucket())
    other = interrupted(resource, epoch=2, model=a_model(whole), **spec)
    assert (other.outcome, other.done) == ("completed", len(LINES))
