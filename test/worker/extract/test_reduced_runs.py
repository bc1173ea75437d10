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
from gleaner_worker.model.files.model_source import find_spec_files
from gleaner_worker.model.weights.reduction_weights import read_capture
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


def described(storage):
    return json.loads(parse_tensors(storage.data(BUCKET, PREFIX + SHARD))[1]["outputs"])


def test_stored_reductions_are_those_of_the_stored_rows(stored, sae_folder, verify, finished_run):
    report, problems = verify()
    assert report["ok"], problems
    found = load_tensors(stored.data(BUCKET, PREFIX + SHARD))
    directions = load_file(f"{sae_folder}/probes.safetensors")["1"]
    for layer in range(3):
        sae, x = load_file(f"{sae_folder}/layer_{layer}/sae_weights.safetensors"), found[f"resid_post.{layer}"]
        x, matrix = x.astype(np.float64), sae["W_enc"].astype(ml_dtypes.bfloat16).astype(np.float64)
        hidden = np.maximum((x - sae["b_dec"]) @ matrix + sae["b_enc"], 0)
        order = np.argsort(-hidden, axis=1, kind="stable")[:, :8]
        assert (found[f"scope_ids.{layer}"] == order).mean() > 0.999
        values = np.take_along_axis(hidden, order, axis=1)
        np.testing.assert_allclose(found[f"scope.{layer}"].astype(np.float64), values, rtol=0.01)
        assert np.array_equal(found[f"scope_active.{layer}"][:, 0], (hidden > 0).sum(axis=1))
        for name, power in (("sum", 1), ("squares", 2)):
            sums = found.get(f"resid_post.{layer}.{name}")
            assert (sums is None) == (layer == 1)
            if sums is not None:
                wanted = np.add.reduceat(x**power, found["sample_offsets"][:-1], axis=0)
                np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-4)
        if layer == 1:
            np.testing.assert_allclose(found["probe.1"], x @ directions.T, rtol=1e-4, atol=1e-4)
    assert described(stored)["scope"].items() >= {"site": "resid_post", "k": 8, "d_sae": D_SAE, "norm": "none"}.items()
    assert "outputs" not in parse_tensors(finished_run.data(BUCKET, PREFIX + SHARD))[1]  # of a run without any


@pytest.mark.parametrize("weights", [f"gs://{BUCKET}/saes", REPO])
def test_a_bucket_and_a_hub_give_the_weights_of_a_folder_and_read_no_other_file(
    storage, tiny_folder, sae_folder, tmp_path, hub, weights
):
    paths = (path for path in Path(sae_folder).rglob("*.*") if path.is_file())
    files = {str(path.relative_to(sae_folder)): path.read_bytes() for path in paths}
    files["layer_0/other.safetensors"] = b"never read"
    for name, data in files.items():
        storage.put(BUCKET, f"saes/{name}", data)
    commit = hub.put(REPO, files) if weights == REPO else None
    where = Hub(hub.url(), lambda check: None, lambda cause: None)
    specs = [a_spec(model=tiny_folder, **reduced(source)) for source in (weights, sae_folder)]
    found, wanted = (read_capture(spec, find_spec_files(spec, str(tmp_path), bucket(), hub=where))[1] for spec in specs)
    for here, there in zip(found, wanted, strict=True):
        assert here.reduction == there.reduction
        assert (here.files.facts["weights"].startswith(weights), here.files.facts["revision"]) == (True, commit)
        for layer in here.reduction.layers:
            one, other = (each.layer(layer, 1, "fp32") for each in (here, there))
            assert all(np.array_equal(one[name], values) for name, values in other.items())
    read = [*hub.asked("cdn"), *(request for request in storage.requests if "alt=media" in request)]
    assert read and not any("other" in request for request in read)


def test_moments_of_a_site_that_no_layer_has_are_refused(tiny_folder):
    with fails("model", "router_logits of .*: no chosen layer has a mixture of experts"):
        a_model(a_spec(model=tiny_folder, moments={"sites": ["router_logits"]}))


@pytest.mark.parametrize("tokens", ["all", "mean"])
def test_a_run_of_moments_alone_and_one_of_projected_means_are_verified(
    storage, extract, verify, tiny_folder, sae_folder, tokens
):
    spec = {"project": reduced(sae_folder)["project"]} if tokens == "mean" else {"moments": {}}
    spec |= {"sites": [], "tokens": tokens}
    extract(LINES, **spec)
    put_manifest(storage, model=tiny_folder, **spec)
    report, problems = verify()
    assert report["ok"] and report["stored_once"] == len(LINES), problems
    names = {name for name in load_tensors(storage.data(BUCKET, PREFIX + SHARD)) if "." in name}
    sums = {f"resid_post.{layer}.{kind}" for layer in range(3) for kind in ("sum", "squares")}
    assert names == (sums if "moments" in spec else {"probe.1"})


def put(column, value):
    """Changes a value of the first row."""
    return lambda row, *rest: [np.where(np.arange(len(row)) == column, value, row), *rest]


# (the problem that is found, the tensor, its damage). Those of a round are made at once, for different outputs.
DAMAGES = [
    [
        ("padding before a feature, or with a value of scope.0", "scope.0", put(3, 0)),
        ("padding before a feature, or with a value of scope.0", "scope_ids.0", put(3, -1)),
        ("rows with an id twice of scope.1", "scope_ids.1", lambda row, *rest: [row[[0, 0, *range(2, 8)]], *rest]),
        ("values that do not descend to zero of scope.2", "scope.2", lambda row, *rest: [row[::-1], *rest]),
        (
            "moments of resid_post.0 that are not those of its rows",
            "resid_post.0.sum",
            lambda *all: np.where(np.arange(all[0].size) == np.abs(all).sum(axis=0).argmin(), 0, all),
        ),
        ("moments of resid_post.2 that are not those", "resid_post.2.squares", lambda *all: np.multiply(all, 1.1)),
    ],
    [
        ("ids outside of 0 to 59 of scope.0", "scope_ids.0", put(0, D_SAE)),
        ("padding before a feature, or with a value of scope.1", "scope_ids.1", put(7, -1)),
        ("numbers of active features that contradict the ids of scope.2", "scope_active.2", put(0, 3)),
        ("moments of resid_post.0 whose squares are too small", "resid_post.0.squares", lambda *all: np.divide(all, 2)),
        ("moments of resid_post.2 that are not finite", "resid_post.2.sum", put(0, np.inf)),
    ],
    [
        ("values that do not descend to zero of scope.0", "scope.0", put(7, -1)),
        ("ids outside of 0 to 59 of scope.1", "scope_ids.1", put(7, -2)),
        ("wrong statistics (l0", "scope_active.2", put(0, D_SAE)),
    ],
]


def test_every_damage_of_a_reduction_is_found(stored, reduced_run, finds):
    facts = described(stored)
    wrong = [facts | {"scope": facts["scope"] | {"d_sae": 61}}, facts | {"more": {}}, [1]]
    for damages, other in zip(DAMAGES, wrong, strict=True):
        stored.load(reduced_run[0])

        def change(tensors, damages=damages):
            for _, name, damage in damages:
                tensors[name] = np.asarray(damage(*tensors[name]), tensors[name].dtype)

        rewrite(stored, SHARD, change, {"outputs": json.dumps(other)}, signed=True)
        finds("otherwise than the spec and its files", *(problem for problem, _, _ in damages))


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


def test_changed_weights_are_refused_by_the_name_of_their_file(storage, tiny_folder, tmp_path):
    put_saes(tmp_path / "saes")
    spec = a_spec(model=tiny_folder, **reduced(str(tmp_path / "saes")))
    first = find_run_model(spec, "my-run", str(tmp_path), bucket())
    put_saes(tmp_path / "saes", seed=1)
    named = "scope/layer_0/sae_weights.safetensors has sha256 .*, and had sha256 .*restore that model"
    with fails("model", f"Failed to resume my-run.*{named}"):
        find_run_model(spec, "my-run", str(tmp_path), bucket())
    changed = find_spec_files(spec, str(tmp_path), None)
    assert changed.fingerprint != first.fingerprint  # which a partial states; see test_partial.py
