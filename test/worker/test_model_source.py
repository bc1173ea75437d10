"""A model's files: from a folder, from a bucket, and the same ones for every worker of a run."""

import hashlib
import json
import os
import shutil
import threading
import time

import pytest

from build import BUCKET, a_spec, bucket
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model import model_cache
from gleaner_worker.model.identity import INDEX, choose_files
from gleaner_worker.model.model_cache import kept_copy, make_room
from gleaner_worker.model.model_lock import find_run_model, read_model_lock
from gleaner_worker.model.model_source import find_model
from gleaner_worker.names import model_name

GS = f"gs://{BUCKET}/models/tiny"
PIN = "activations/my-run/model.json"
SPLIT = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def folder(tmp_path, tiny_folder):
    """A model of this test's own."""
    return shutil.copytree(tiny_folder, tmp_path / "a model")


def upload(storage, folder, prefix="models/tiny/"):
    for name in os.listdir(folder):
        storage.put(BUCKET, f"{prefix}{name}", (folder / name).read_bytes())


def downloads(storage):
    return [request.partition("?")[0].rpartition("/")[2] for request in storage.requests if "alt=media" in request]


def split_weights(folder):
    """The same weights as two files and an index."""
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    (folder / SPLIT[0]).write_bytes(data[:100])
    (folder / SPLIT[1]).write_bytes(data[100:])
    (folder / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": SPLIT[0], "b": SPLIT[1], "c": SPLIT[1]}})
    )


# --- hashes ----------------------------------------------------------------------------------------------------------


def test_a_folder_and_its_copy_in_a_bucket_have_the_same_hashes(storage, tmp_path, folder):
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "README.md").write_text("#")
    upload(storage, folder)
    here = find_model(str(folder), "", None)
    there = find_model(GS, str(tmp_path), bucket())
    assert here.files == there.files
    assert (here.fingerprint, here.weights_sha256) == (there.fingerprint, there.weights_sha256)
    assert here.tokenizer_sha256 == hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert here.weights_sha256 == hashlib.sha256(f"model.safetensors {weights}\n".encode()).hexdigest()
    lines = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(here.files.items()))
    assert here.fingerprint == hashlib.sha256(lines.encode()).hexdigest()[:16]
    assert "README.md" not in here.files


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"],
)
def test_every_file_that_decides_an_activation_is_in_the_fingerprint(folder, name):
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "special_tokens_map.json").write_text("{}")
    before = find_model(str(folder), "", None)
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    after = find_model(str(folder), "", None)
    assert after.fingerprint != before.fingerprint
    assert after.weights_sha256 == before.weights_sha256
    assert {key for key in after.files if after.files[key] != before.files[key]} == {name}


def test_weights_in_several_files_are_those_that_the_index_names(folder):
    before = find_model(str(folder), "", None)
    split_weights(folder)
    (folder / "consolidated.safetensors").write_bytes(b"the same weights again")
    after = find_model(str(folder), "", None)
    assert [name for name in after.files if name.startswith("model")] == [*SPLIT, INDEX]
    assert after.weights_sha256 != before.weights_sha256
    (folder / "model.safetensors").write_bytes(b"left from before")
    assert find_model(str(folder), "", None) == after


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["tokenizer.json", "model.safetensors"], "it has no config.json$"),
        (
            ["config.json", "model.safetensors"],
            "it has no tokenizer.json: put the tokenizer's own tokenizer.json beside",
        ),
        (
            ["config.json", "tokenizer.model", "model.safetensors"],
            r"no tokenizer.json, only tokenizer.model: make it once "
            r"with transformers, AutoTokenizer.from_pretrained\('m'\).save_pretrained\(FOLDER\), and put ",
        ),
        (["config.json", "vocab.json", "merges.txt", "model.safetensors"], "only vocab.json: make it once"),
        (["config.json", "tokenizer.json"], "it has no model.safetensors and no model.safetensors.index.json$"),
        (["config.json", "tokenizer.json", "consolidated.safetensors"], "that says what consolidated.safetensors is"),
        (
            ["config.json", "tokenizer.json", "pytorch_model.bin"],
            r"pickled weights only \(pytorch_model.bin\), which are "
            r"never read, .* AutoModelForCausalLM.from_pretrained\('m'\).save_pretrained\(FOLDER\)",
        ),
        (["config.json", "tokenizer.json", "pytorch_model.bin.index.json"], "pickled weights only"),
        (["README.md"], "it has no config.json; it has no tokenizer.json.*; it has no model.safetensors"),
    ],
)
def test_everything_that_a_model_lacks_is_told_at_once(tmp_path, names, reason):
    with pytest.raises(Failure, match=f"Failed to use the model m: .*{reason}") as failure:
        choose_files(names, str(tmp_path), "m", weights=True)
    assert failure.value.kind == "model"


def test_without_weights_none_are_missed(tmp_path):
    assert choose_files(["config.json", "tokenizer.json"], str(tmp_path), "m", weights=False) == [
        "config.json",
        "tokenizer.json",
    ]


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "list indices"),
        ("{}", "it has no weight_map"),
        ('{"weight_map": []}', "no attribute 'values'"),
        ('{"weight_map": {}}', "it names no file"),
        ('{"weight_map": {"a": 1}}', "1 is no name of a safetensors file"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "'../x.safetensors' is no name"),
        ('{"weight_map": {"a": "/etc/x.safetensors"}}', "is no name"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "'pytorch_model.bin' is no name"),
        ('{"weight_map": {"a": "x.safetensors\\n"}}', "is no name"),
        ('{"weight_map": {"a": {"b": 1}}}', "unhashable"),
        ("[" * 100_000, "recursion|Expecting|too many"),
        (b"\xff", "can't decode byte"),
    ],
)
def test_an_index_that_is_none_is_told(folder, index, reason):
    (folder / INDEX).write_bytes(index if isinstance(index, bytes) else index.encode())
    with pytest.raises(Failure, match=f"Failed to read {INDEX} of .*a model: .*({reason})") as failure:
        find_model(str(folder), "", None)
    assert failure.value.kind == "model"


def test_a_file_that_the_index_names_and_nobody_has_is_told(folder):
    split_weights(folder)
    (folder / SPLIT[1]).unlink()
    with pytest.raises(Failure, match=f"it has no {SPLIT[1]}, which {INDEX} names"):
        find_model(str(folder), "", None)


@pytest.mark.parametrize(
    ("model", "revision", "reason"),
    [
        ("/no/such/folder", None, "there is no such folder on this machine; copy it to gs://"),
        ("./no-such-folder", None, "there is no such folder on this machine"),
        (f"gs://{BUCKET}/models/absent", None, "there is no model folder of that name"),
        (f"gs://{BUCKET}", None, "it is no folder of this machine, no gs://BUCKET/FOLDER and no id on a hub such as"),
        ("a/b/c", None, "no id on a hub"),
        ("https://huggingface.co/a/b", None, "no id on a hub"),
        ("", None, "no id on a hub"),
        ("a\0b", None, "no id on a hub"),
        (f"gs://{BUCKET}/models/tiny", "main", "only models of a hub have revisions; take `revision` out of run.json"),
    ],
)
def test_a_model_that_is_not_there_is_told(storage, tmp_path, model, revision, reason):
    with pytest.raises(Failure, match=reason) as failure:
        find_model(model, str(tmp_path), bucket(), revision=revision)
    assert failure.value.kind == "model"


def test_a_folder_has_no_revision(folder):
    with pytest.raises(Failure, match="Failed to use revision v1 of .*a model: only models of a hub have revisions"):
        find_model(str(folder), "", None, revision="v1")


# --- copies of what is in a bucket -----------------------------------------------------------------------------------


def test_a_model_in_a_bucket_is_copied_once_and_nothing_else_of_its_folder(storage, tmp_path, folder):
    split_weights(folder)
    upload(storage, folder)
    for name in ("pytorch_model.bin", "modeling.py", "consolidated.safetensors", "onnx/model.safetensors"):
        storage.put(BUCKET, f"models/tiny/{name}", b"x")
    found = find_model(f"{GS}/", str(tmp_path), bucket())
    assert sorted(downloads(storage)) == sorted(found.files) == sorted(os.listdir(found.folder))
    again = find_model(f"{GS}/", str(tmp_path), bucket())
    assert (again.files, again.folder, again.is_kept, found.is_kept) == (found.files, found.folder, True, False)
    assert len(downloads(storage)) == len(found.files)


def test_a_model_that_was_replaced_in_its_bucket_gets_a_folder_of_its_own(storage, tmp_path, folder):
    upload(storage, folder)
    before = find_model(GS, str(tmp_path), bucket())
    storage.put(BUCKET, "models/tiny/config.json", (folder / "config.json").read_bytes() + b" ")
    after = find_model(GS, str(tmp_path), bucket())
    assert before.folder != after.folder
    assert before.fingerprint != after.fingerprint


def test_a_copy_that_was_ended_goes_on_with_the_files_that_lack(storage, tmp_path, folder):
    split_weights(folder)
    upload(storage, folder)

    storage.faults = lambda what: 503 if "alt=media" in what and SPLIT[1] in what else None

    def end():
        if downloads(storage).count(SPLIT[1]) > 1:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        find_model(GS, str(tmp_path), bucket(end))
    (unfinished,) = (name for name in os.listdir(tmp_path / "models") if not name.endswith(".lock"))
    there = [name for name in os.listdir(tmp_path / "models" / unfinished) if not name.endswith(".part")]
    assert set(there) >= {INDEX, SPLIT[0]} and SPLIT[1] not in there
    storage.faults = lambda what: None
    begun = len(downloads(storage))
    found = find_model(GS, str(tmp_path), bucket())
    assert not set(there) & set(downloads(storage)[begun:])
    assert found.files == find_model(str(folder), "", None).files


def test_a_file_that_is_replaced_while_it_is_copied_is_told(storage, tmp_path, folder):
    upload(storage, folder)

    def replace(what):
        if "alt=media" in what and "config.json" in what:
            storage.put(BUCKET, "models/tiny/config.json", b"{}")

    storage.faults = replace
    with pytest.raises(Failure, match="models/tiny/config.json was replaced meanwhile; start the run again"):
        find_model(GS, str(tmp_path), bucket())


def test_what_fills_the_disk_is_made_room_for_by_the_copy_used_longest_ago(tmp_path, monkeypatch):
    for age, key in enumerate(("newest", "middle", "oldest")):
        made = kept_copy(str(tmp_path), key, lambda: None, lambda path: open(os.path.join(path, "x"), "w").close())
        os.utime(made.folder, (1000 - age, 1000 - age))
    parent = tmp_path / "models"
    (parent / "mine.unfinished").mkdir()
    usage = shutil.disk_usage(tmp_path)
    free = {3: 0, 2: 5 << 30, 1: 20 << 30}

    def disk_usage(_):
        return usage._replace(free=free[sum(name in ("newest", "middle", "oldest") for name in os.listdir(parent))])

    monkeypatch.setattr(model_cache.shutil, "disk_usage", disk_usage)
    make_room(str(parent / "mine.unfinished"), 3 << 30, "m")
    assert {name for name in os.listdir(parent) if not name.endswith(".lock")} == {
        "newest",
        "middle",
        "mine.unfinished",
    }
    make_room(str(parent / "mine.unfinished"), 10 << 30, "m")
    assert {name for name in os.listdir(parent) if not name.endswith(".lock")} == {"newest", "mine.unfinished"}
    free[0] = 20 << 30
    with pytest.raises(
        Failure, match="Failed to copy the model m: it needs 42.9 GB, and the disk of .* has 21.5 GB free"
    ):
        make_room(str(parent / "mine.unfinished"), 40 << 30, "m")


def test_one_copy_is_made_by_one_at_a_time_and_found_by_the_others(tmp_path):
    made = []

    def fill(path):
        made.append(path)
        time.sleep(0.2)
        open(os.path.join(path, "x"), "w").close()

    threads = [
        threading.Thread(target=kept_copy, args=(str(tmp_path), "a", lambda: None, fill), daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert os.listdir(tmp_path / "models" / "a") == ["x"]


# --- one model for a run ---------------------------------------------------------------------------------------------


def find_for_run(model, home, run="my-run", weights=True, **spec):
    return find_run_model(a_spec(model=str(model), **spec), run, str(home), bucket(), weights=weights)


def test_the_first_worker_writes_down_what_a_run_is_begun_with(storage, tmp_path, folder):
    found = find_for_run(folder, tmp_path)
    assert json.loads(storage.data(BUCKET, PIN)) == {
        "schema": "gleaner/1",
        "name": str(folder),
        "revision": None,
        "fingerprint": found.fingerprint,
        "weights_sha256": found.weights_sha256,
        "tokenizer_sha256": found.tokenizer_sha256,
        "files": found.files,
    }
    written = storage.objects[BUCKET, PIN]["resource"]["generation"]
    assert find_for_run(folder, tmp_path) == found
    assert storage.objects[BUCKET, PIN]["resource"]["generation"] == written
    lock = read_model_lock(bucket(), "my-run")
    assert (lock.name, lock.fingerprint, lock.files) == (found.name, found.fingerprint, found.files)


def test_the_default_run_has_its_own_and_each_run_one(storage, tmp_path, folder):
    assert model_name("default") == "activations/model.json"
    assert model_name("my-run") == PIN
    find_for_run(folder, tmp_path, run="default")
    assert storage.names(BUCKET, "activations/") == ["activations/model.json"]


def test_a_model_that_changed_between_streams_is_told_by_every_file(storage, tmp_path, folder):
    find_for_run(folder, tmp_path)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    (folder / "tokenizer_config.json").unlink()
    (folder / "chat_template.jinja").write_text("")
    with pytest.raises(Failure) as failure:
        find_for_run(folder, tmp_path)
    assert failure.value.kind == "model"
    for phrase in (
        "Failed to go on with my-run, which was begun with another model (gs://a-bucket/activations/my-run/model.json)",
        "chat_template.jinja is new; config.json has sha256 ",
        "; model.safetensors has sha256 ",
        "; tokenizer_config.json is gone; put that model back, or start a new run",
    ):
        assert phrase in failure.value.reason
    assert "; tokenizer.json" not in failure.value.reason


def test_a_model_that_changed_in_its_bucket_is_told_and_copied_no_more_than_once(storage, tmp_path, folder):
    upload(storage, folder)
    find_for_run(GS, tmp_path)
    storage.put(BUCKET, "models/tiny/config.json", b" " + (folder / "config.json").read_bytes())
    before = len(downloads(storage))
    with pytest.raises(Failure, match="begun with another model .*: config.json has sha256 ") as failure:
        find_for_run(GS, tmp_path)
    assert failure.value.kind == "model"
    assert downloads(storage)[before:].count("model.safetensors") == 1


def test_a_kept_copy_that_the_disk_has_spoilt_is_copied_anew(storage, tmp_path, folder):
    upload(storage, folder)
    found = find_for_run(GS, tmp_path)
    with open(os.path.join(found.folder, "model.safetensors"), "r+b") as file:
        file.write(b"spoilt")
    assert find_for_run(GS, tmp_path).files == found.files


def test_without_weights_only_the_small_files_are_compared_and_nothing_is_written(storage, tmp_path, folder):
    find_for_run(folder, tmp_path, weights=False)
    assert storage.names(BUCKET) == []
    find_for_run(folder, tmp_path)
    (folder / "model.safetensors").write_bytes(b"another")
    assert find_for_run(folder, tmp_path, weights=False).fingerprint is None
    (folder / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes() + b" ")
    with pytest.raises(Failure, match="tokenizer.json has sha256 .*, and had ") as failure:
        find_for_run(folder, tmp_path, weights=False)
    assert "safetensors" not in failure.value.reason


def test_another_model_under_the_same_run_is_told(storage, tmp_path, folder):
    find_for_run(folder, tmp_path)
    other = shutil.copytree(folder, tmp_path / "other")
    with pytest.raises(Failure, match="it was .*a model, now it is .*other"):
        find_for_run(other, tmp_path)


def test_of_two_workers_that_begin_a_run_with_different_files_one_gives_way(storage, tmp_path, folder):
    upload(storage, folder)
    other = []

    def replace(what):  # while this worker is about to write, the model is replaced and another worker is quicker
        if "/upload/" in what and not other:
            other.append(0)
            storage.put(BUCKET, "models/tiny/config.json", (folder / "config.json").read_bytes() + b" ")
            other[0] = find_for_run(GS, tmp_path / "other")

    storage.faults = replace
    found = find_for_run(GS, tmp_path / "one")
    assert found.files == other[0].files
    assert json.loads(storage.data(BUCKET, PIN))["fingerprint"] == found.fingerprint


def test_a_worker_that_comes_second_with_other_files_says_which(storage, tmp_path, folder):
    mine = (folder / "config.json").read_bytes()
    others = []

    def come_first(what):  # a machine whose folder of that name holds something else
        if "/upload/" in what and not others:
            others.append(what)
            (folder / "config.json").write_bytes(mine + b" ")
            find_for_run(folder, tmp_path)
            (folder / "config.json").write_bytes(mine)

    storage.faults = come_first
    with pytest.raises(Failure, match="begun with another model .*: config.json has sha256"):
        find_for_run(folder, tmp_path)


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
        ({"revision": "main"}, "revision is 'main', which is no commit"),
        ({"revision": ["x"]}, "which is no commit"),
        ({"files": ["x"]}, "files is"),
        ({"files": {"config.json": 1}}, "files is"),
        (b"[" * 100_000, "recursion"),
        (b" " * ((1 << 20) + 1), "it has 1048577 bytes"),
    ],
)
def test_a_model_json_that_is_none_is_told(storage, tmp_path, folder, data, reason):
    if isinstance(data, dict):
        find_for_run(folder, tmp_path)
        data = json.dumps(json.loads(storage.data(BUCKET, PIN)) | data).encode()
    storage.put(BUCKET, PIN, data)
    with pytest.raises(
        Failure, match=f"Failed to read gs://{BUCKET}/{PIN}: .*{reason}.*; delete it, and the next"
    ) as failure:
        find_for_run(folder, tmp_path)
    assert failure.value.kind == "model"
