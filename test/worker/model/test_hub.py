"""Models from a hub: the real huggingface_hub against a hub on loopback."""

import json
import os
import subprocess

import pytest

from build import fails
from gleaner_worker.model.files import model_cache
from gleaner_worker.model.files.hub import Hub, is_hub_id
from gleaner_worker.model.files.model_source import find_model
from hub_models import REPO, USED, files_of, find


def test_a_download_has_exactly_the_used_files_at_the_commit_of_the_branch(hub, tmp_path, tiny_folder, files):
    others = {
        "README.md": b"#",
        "modeling.py": b"import os",
        "pytorch_model.bin": b"pickled",
        "consolidated.safetensors": b"the same weights again",
        "generation_config.json": b"{}",
        "onnx/model.safetensors": b"elsewhere",
        "../../escaped.safetensors": b"x",
        "/etc/config.json": b"x",
    }
    commit = hub.put(REPO, files | others)
    found = find(hub, tmp_path)
    assert (found.revision, found.name, sorted(found.files)) == (commit, REPO, USED)
    assert sorted(os.listdir(found.folder)) == USED
    assert files_of(found.folder) == files
    fetched = {path.rpartition("/")[2] for path in hub.asked(method="GET") if "/resolve/" in path}
    assert fetched == set(USED)
    assert all(commit in path for path in hub.asked() if "/resolve/" in path)
    assert not any("telemetry" in path for path in hub.asked())
    assert find_model(tiny_folder, "", None).fingerprint == found.fingerprint


def test_every_received_byte_of_a_download_is_counted(hub, tmp_path, files):
    received = []
    find_model(REPO, str(tmp_path), None, hub=Hub(hub.url(), received=received.append))
    assert sum(received) == sum(len(files[name]) for name in USED)


def test_a_download_without_weights_has_only_the_small_files(hub, tmp_path, files):
    found = find(hub, tmp_path, weights=False)
    assert sorted(found.files) == [name for name in USED if name != "model.safetensors"]
    assert (found.fingerprint, found.weights_sha256) == (None, None)
    assert hub.asked("cdn") == []
    assert find(hub, tmp_path).weights_sha256  # a copy without weights does not count as a model


def test_a_download_has_only_the_weights_that_the_index_names(hub, tmp_path, files):
    weights = files.pop("model.safetensors")
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = json.dumps({"weight_map": {"a": names[0], "b": names[1], "c": names[1]}}).encode()
    split = {names[0]: weights[:1000], names[1]: weights[1000:]}
    hub.put(REPO, files | split | {"model.safetensors.index.json": index, "consolidated.safetensors": weights})
    found = find(hub, tmp_path)
    assert [name for name in sorted(found.files) if name.startswith("model")] == [
        *names,
        "model.safetensors.index.json",
    ]
    assert sorted(path.rpartition("/")[2] for path in hub.asked("cdn")) == names


def test_a_commit_on_the_disk_is_used_without_a_request(hub, tmp_path, files):
    commit = hub.put(REPO, files)
    first = find(hub, tmp_path)
    asked = len(hub.requests)
    again = find(hub, tmp_path, revision=commit)
    assert (again.folder, again.files, len(hub.requests)) == (first.folder, first.files, asked)
    by_branch = find(hub, tmp_path, revision="main")
    assert by_branch.folder == first.folder
    assert len(hub.requests) == asked + 1  # the request for the commit of the branch


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/2", None])
def test_a_revision_may_be_a_branch_a_tag_or_a_pull_request(hub, tmp_path, files, revision):
    commit = hub.put(REPO, files, branch=revision or "main")
    assert find(hub, tmp_path, revision=revision).revision == commit


def test_a_model_id_may_lack_an_organisation(hub, tmp_path, files):
    commit = hub.put("gpt", files)
    assert find(hub, tmp_path, "gpt").revision == commit


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen2.5-0.5B", True),
        ("gpt2", True),
        ("a/b_c.d-e", True),
        ("a/b/c", False),
        ("a//b", False),
        ("../b", False),
        ("a/..", False),
        ("a/b..c", False),
        ("a--b/c", False),
        ("-a/b", False),
        ("a-/b", False),
        ("a/b.", False),
        ("a/b.git", False),
        ("a/b?x=1", False),
        ("a/b#c", False),
        ("a/b c", False),
        ("a/é", False),
        ("a/b\n", False),
        ("https://h/a/b", False),
        ("x" * 97, False),
        ("", False),
    ],
)
def test_ids_of_a_hub_are_recognised(model, expected):
    assert is_hub_id(model) is expected


def test_a_model_too_large_for_the_disk_is_refused_before_its_download(hub, tmp_path, files, monkeypatch):
    usage = model_cache.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(model_cache.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with fails("infrastructure", rf"Failed to copy {REPO}: it needs 0.. GB, .*upload it to a folder gs"):
        find(hub, tmp_path)
    assert hub.asked("cdn") == []


def test_a_disk_that_fills_up_during_a_download_is_reported(hub, tmp_path, files):
    hub.tells_sizes = False  # so that the size is unknown before the download
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        with fails("infrastructure", r"Failed to write .*\.part: the disk is full"):
            find(hub, small)
        subprocess.run(["mount", "-o", "remount,size=10m", str(small)], check=True)
        assert files_of(find(hub, small).folder) == files
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
