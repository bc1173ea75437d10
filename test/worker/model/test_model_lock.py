"""One model for a run: every worker uses the files that the first worker recorded."""

import json
import os
import shutil

import pytest

from build import BUCKET, a_spec, bucket, fails
from gleaner_worker.failures import Failure
from gleaner_worker.model.files.model_lock import find_run_model, read_model_lock
from gleaner_worker.names import model_name
from model_folders import GS, MODEL_JSON, downloads, upload


def find_for_run(model, home, run="my-run", weights=True, **spec):
    return find_run_model(a_spec(model=str(model), **spec), run, str(home), bucket(), weights=weights)


def test_the_first_worker_writes_the_lock_of_a_run(storage, tmp_path, model_folder):
    found = find_for_run(model_folder, tmp_path)
    assert json.loads(storage.data(BUCKET, MODEL_JSON)) == {
        "schema": "gleaner/1",
        "name": str(model_folder),
        "revision": None,
        "fingerprint": found.fingerprint,
        "weights_sha256": found.weights_sha256,
        "tokenizer_sha256": found.tokenizer_sha256,
        "files": found.files,
        "unknown_keys": [],
    }
    written = storage.objects[BUCKET, MODEL_JSON]["resource"]["generation"]
    assert find_for_run(model_folder, tmp_path) == found
    assert storage.objects[BUCKET, MODEL_JSON]["resource"]["generation"] == written
    lock = read_model_lock(bucket(), "my-run")
    assert (lock.name, lock.fingerprint, lock.files) == (found.name, found.fingerprint, found.files)


def test_each_run_has_its_own_lock(storage, tmp_path, model_folder):
    assert model_name("default") == "activations/model.json"
    assert model_name("my-run") == MODEL_JSON
    find_for_run(model_folder, tmp_path, run="default")
    assert storage.names(BUCKET, "activations/") == ["activations/model.json"]


def test_a_model_that_changed_between_streams_is_refused_with_every_changed_file(storage, tmp_path, model_folder):
    find_for_run(model_folder, tmp_path)
    for name in ("config.json", "model.safetensors"):
        (model_folder / name).write_bytes((model_folder / name).read_bytes() + b" ")
    (model_folder / "tokenizer_config.json").unlink()
    (model_folder / "chat_template.jinja").write_text("")
    with fails("model") as failure:
        find_for_run(model_folder, tmp_path)
    for phrase in (
        "Failed to resume my-run, which began with a different model (gs://a-bucket/activations/my-run/model.json)",
        "chat_template.jinja is new; config.json has sha256 ",
        "; model.safetensors has sha256 ",
        "; tokenizer_config.json is gone; restore that model, or start a new run",
    ):
        assert phrase in failure.value.reason
    assert "; tokenizer.json" not in failure.value.reason


def test_a_model_that_changed_in_its_bucket_is_refused_and_equal_weights_are_not(storage, tmp_path, model_folder):
    upload(storage, model_folder)
    first = find_for_run(GS, tmp_path)
    upload(storage, model_folder)
    assert find_for_run(GS, tmp_path).fingerprint == first.fingerprint
    storage.put(BUCKET, "models/tiny/model.safetensors", b"other")
    storage.put(BUCKET, "models/tiny/config.json", b" " + (model_folder / "config.json").read_bytes())
    with fails(
        "model",
        "a different model .*: config.json has sha256 .*; model.safetensors has crc32c:.{8}:5, and had crc32c:",
    ):
        find_for_run(GS, tmp_path)
    assert "model.safetensors" not in downloads(storage)


def test_a_copy_that_the_disk_damaged_is_copied_again(storage, tmp_path, model_folder):
    upload(storage, model_folder)
    found = find_for_run(GS, tmp_path)
    with open(os.path.join(found.folder, "tokenizer.json"), "r+b") as file:
        file.write(b"spoilt")
    assert find_for_run(GS, tmp_path).files == found.files


def test_without_weights_only_the_small_files_are_compared_and_no_lock_is_written(storage, tmp_path, model_folder):
    find_for_run(model_folder, tmp_path, weights=False)
    assert storage.names(BUCKET) == []
    find_for_run(model_folder, tmp_path)
    (model_folder / "model.safetensors").write_bytes(b"another")
    assert find_for_run(model_folder, tmp_path, weights=False).fingerprint is None
    (model_folder / "tokenizer.json").write_bytes((model_folder / "tokenizer.json").read_bytes() + b" ")
    with pytest.raises(Failure, match="tokenizer.json has sha256 .*, and had ") as failure:
        find_for_run(model_folder, tmp_path, weights=False)
    assert "safetensors" not in failure.value.reason


def test_another_model_under_the_same_run_is_refused(storage, tmp_path, model_folder):
    find_for_run(model_folder, tmp_path)
    other = shutil.copytree(model_folder, tmp_path / "other")
    with pytest.raises(Failure, match="it was .*a model, now it is .*other"):
        find_for_run(other, tmp_path)


def test_of_two_workers_with_different_files_the_second_adopts_the_files_of_the_first(storage, tmp_path, model_folder):
    upload(storage, model_folder)
    other = []

    def replace(request):  # at this worker's write, the model is replaced and another worker writes first
        if "/upload/" in request and not other:
            other.append(0)
            storage.put(BUCKET, "models/tiny/config.json", (model_folder / "config.json").read_bytes() + b" ")
            other[0] = find_for_run(GS, tmp_path / "other")

    storage.faults = replace
    found = find_for_run(GS, tmp_path / "one")
    assert found.files == other[0].files
    assert json.loads(storage.data(BUCKET, MODEL_JSON))["fingerprint"] == found.fingerprint


def test_a_second_worker_with_other_files_is_refused_with_their_names(storage, tmp_path, model_folder):
    mine = (model_folder / "config.json").read_bytes()
    others = []

    def come_first(request):  # another machine whose folder of that name has other content
        if "/upload/" in request and not others:
            others.append(request)
            (model_folder / "config.json").write_bytes(mine + b" ")
            find_for_run(model_folder, tmp_path)
            (model_folder / "config.json").write_bytes(mine)

    storage.faults = come_first
    with pytest.raises(Failure, match="began with a different model .*: config.json has sha256"):
        find_for_run(model_folder, tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "decode"),
        (b"[]", "it is not of schema gleaner/1"),
        (b'{"schema": "gleaner/2"}', "it is not of schema gleaner/1"),
        ({"name": 1}, "name is 1"),
        ({"fingerprint": None}, "fingerprint is None"),
        ({"revision": "main"}, "revision is 'main', which is not a commit"),
        ({"revision": ["x"]}, "which is not a commit"),
        ({"files": ["x"]}, "files is"),
        ({"files": {"config.json": 1}}, "files is"),
        (b"[" * 100_000, "recursion"),
        (b" " * ((1 << 20) + 1), "it has 1048577 bytes"),
    ],
)
def test_a_malformed_model_json_is_reported(storage, tmp_path, model_folder, data, reason):
    if isinstance(data, dict):
        find_for_run(model_folder, tmp_path)
        data = json.dumps(json.loads(storage.data(BUCKET, MODEL_JSON)) | data).encode()
    storage.put(BUCKET, MODEL_JSON, data)
    with fails("model", f"Failed to read gs://{BUCKET}/{MODEL_JSON}: .*{reason}.*; delete it, and the next"):
        find_for_run(model_folder, tmp_path)
