"""One model for a run whose model comes from a hub: every worker uses the same commit."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from build import BUCKET, a_spec, bucket, fails
from gleaner_worker.model.files.hub import Hub
from gleaner_worker.model.files.model_lock import find_run_model
from hub_models import REPO, files_of

pytestmark = pytest.mark.slow


def find_for_run(hub, home, weights=True, token=None, **spec):
    home.mkdir(exist_ok=True)
    return find_run_model(
        a_spec(**({"model": REPO} | spec)), "my-run", str(home), bucket(), Hub(hub.url(), lambda check: token), weights
    )


def test_a_run_keeps_its_first_commit(hub, tmp_path, storage, files):
    first = hub.put(REPO, files)
    mine = find_for_run(hub, tmp_path / "one")
    second = hub.put(REPO, files | {"config.json": files["config.json"] + b" "})
    assert hub.branches[REPO]["main"] == second != first
    for home, weights in (("one", True), ("two", True), ("verify", False)):
        found = find_for_run(hub, tmp_path / home, weights)
        assert found.revision == first
        assert found.files["config.json"] == mine.files["config.json"]
    record = json.loads(storage.data(BUCKET, "activations/my-run/model.json"))
    assert record == {
        "schema": "gleaner/1",
        "name": REPO,
        "revision": first,
        "fingerprint": mine.fingerprint,
        "weights_sha256": mine.weights_sha256,
        "tokenizer_sha256": mine.files["tokenizer.json"],
        "files": mine.files,
        "unknown_keys": [],
    }


def test_of_two_workers_at_different_commits_the_second_adopts_the_first(hub, tmp_path, storage, files):
    first = hub.put(REPO, files)
    second = []

    def move(request):  # the branch moves and another worker writes first, just before this worker writes
        if "/upload/" in request and not second:
            second.append(hub.put(REPO, files | {"config.json": files["config.json"] + b" "}))
            find_for_run(hub, tmp_path / "two")

    storage.faults = move
    found = find_for_run(hub, tmp_path / "one")
    assert [found.revision] == second != [first]
    assert json.loads(storage.data(BUCKET, "activations/my-run/model.json"))["revision"] == found.revision


def test_workers_that_start_at_the_same_time_use_the_same_commit(hub, tmp_path, files):
    moves = threading.Semaphore(3)

    def move(server, method, path):
        if server == "cdn" and moves.acquire(blocking=False):
            hub.put(REPO, files | {"config.json": files["config.json"] + b" " * len(hub.requests)})

    hub.faults = move
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda name: find_for_run(hub, tmp_path / name), "abcdef"))
    assert len({(model.revision, model.fingerprint) for model in found}) == 1


def test_the_commit_of_run_json_must_be_the_commit_of_the_run(hub, tmp_path, files):
    first = hub.put(REPO, files)
    find_for_run(hub, tmp_path / "one")
    assert find_for_run(hub, tmp_path / "one", revision=first).revision == first
    second = hub.put(REPO, files | {"config.json": files["config.json"] + b" "})
    with fails("model", f"it was commit {first}, `revision` asks for {second}"):
        find_for_run(hub, tmp_path / "one", revision=second)


def test_a_copy_that_the_disk_damaged_is_fetched_again(hub, tmp_path, files):
    folder = find_for_run(hub, tmp_path / "one").folder
    with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
        file.truncate(1000)
    assert files_of(find_for_run(hub, tmp_path / "one").folder) == files
