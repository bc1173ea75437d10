"""A model's files from a folder or from a bucket."""

import fcntl
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from build import BUCKET, bucket, fails
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model.files import model_cache, model_source
from gleaner_worker.model.files.hub import Hub
from gleaner_worker.model.files.model_cache import kept_copy, make_room
from gleaner_worker.model.files.model_source import find_model
from gleaner_worker.model_files import CONFIG, INDEX, TOKENIZER
from gleaner_worker.storage import objects
from gleaner_worker.storage.downloads import Downloads
from model_folders import GS, SPLIT, downloads, split_weights, upload
from waiting import until


@pytest.mark.parametrize(
    ("model", "revision", "reason"),
    [
        ("/no/such/folder", None, "it is no folder of this machine, no gs://BUCKET/FOLDER and no id on a hub such as"),
        ("./no-such-folder", None, "it is no folder of this machine"),
        (f"gs://{BUCKET}/models/absent", None, "the bucket has no object under that name; upload the model there"),
        (f"gs://{BUCKET}/models/half", None, "it has no config.json"),
        (f"gs://{BUCKET}", None, "it is no folder of this machine, no gs://BUCKET/FOLDER and no id on a hub such as"),
        ("a/b/c", None, "no id on a hub"),
        ("https://huggingface.co/a/b", None, "no id on a hub"),
        ("", None, "no id on a hub"),
        ("a\0b", None, "no id on a hub"),
        (f"gs://{BUCKET}/models/tiny", "main", "only models of a hub have revisions; leave `revision` out"),
    ],
)
def test_a_missing_model_is_reported_with_its_name(storage, tmp_path, model, revision, reason):
    storage.put(BUCKET, "models/half/tokenizer.json", b"{}")
    with fails("model", f" {re.escape(model)}: .*{reason}"):
        find_model(model, str(tmp_path), bucket(), revision=revision)


def test_a_folder_has_no_revision(model_folder):
    with pytest.raises(Failure, match="Failed to use revision v1 of .*a model: only models of a hub have revisions"):
        find_model(str(model_folder), "", None, revision="v1")


def test_a_folder_with_the_name_of_a_model_on_a_hub_is_not_that_model(tmp_path, model_folder, monkeypatch):
    def refuse(hub, model, *_):
        raise Failure("hub", f"asked for {model}")

    monkeypatch.setattr(model_source, "fetch_model", refuse)
    monkeypatch.chdir(tmp_path)
    for name in ("meta-llama/Llama-3.1-8B", "gpt2"):
        shutil.copytree(model_folder, name)
        with fails("hub", f"asked for {name}"):
            find_model(name, str(tmp_path), None, hub=Hub("https://hub", None))
        assert find_model(f"./{name}", str(tmp_path), None).revision is None


def test_the_small_files_of_a_model_in_a_bucket_are_copied_once_and_its_weights_stay_there(
    storage, tmp_path, model_folder
):
    split_weights(model_folder)
    upload(storage, model_folder)
    for name in ("pytorch_model.bin", "modeling.py", "consolidated.safetensors", "onnx/model.safetensors"):
        storage.put(BUCKET, f"models/tiny/{name}", b"x")
    found = find_model(f"{GS}/", str(tmp_path), bucket())
    assert sorted([*downloads(storage), *SPLIT]) == sorted(found.files)
    assert sorted([*os.listdir(found.folder), *SPLIT]) == sorted(found.files)
    assert [file.name for file in found.weights] == SPLIT
    with open(os.path.join(found.folder, SPLIT[0]), "w") as file:
        file.write("a copy for another purpose")
    storage.requests.clear()
    again = find_model(f"{GS}/", str(tmp_path), bucket())
    assert (again.files, again.folder, again.weights) == (found.files, found.folder, found.weights)
    assert (again.is_kept, found.is_kept) == (True, False)
    assert downloads(storage) == []


def test_a_replaced_model_in_a_bucket_gets_a_folder_of_its_own(storage, tmp_path, model_folder):
    upload(storage, model_folder)
    before = find_model(GS, str(tmp_path), bucket())
    storage.put(BUCKET, "models/tiny/config.json", (model_folder / "config.json").read_bytes() + b" ")
    after = find_model(GS, str(tmp_path), bucket())
    assert before.folder != after.folder
    assert before.fingerprint != after.fingerprint


def test_an_interrupted_copy_is_completed_by_the_next(storage, tmp_path, model_folder):
    split_weights(model_folder)
    upload(storage, model_folder)
    storage.faults = lambda request: "half" if "alt=media" in request and TOKENIZER in request else None

    def end():
        if downloads(storage).count(TOKENIZER) > 1:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        find_model(GS, str(tmp_path), bucket(end))
    storage.faults = lambda request: None
    found, here = find_model(GS, str(tmp_path), bucket()), find_model(str(model_folder), "", None)
    assert {name: found.files[name] for name in (CONFIG, INDEX, TOKENIZER)}.items() <= here.files.items()


def test_a_file_that_is_replaced_during_its_copy_is_reported(storage, tmp_path, model_folder):
    upload(storage, model_folder)

    def replace(request):
        if "alt=media" in request and "config.json" in request:
            storage.put(BUCKET, "models/tiny/config.json", b"{}")

    storage.faults = replace
    with pytest.raises(
        Failure,
        match="models/tiny/config.json: it was replaced or deleted after the model was opened; give each model ",
    ):
        find_model(GS, str(tmp_path), bucket())


def test_the_least_recently_used_model_copies_are_deleted_on_a_full_disk(tmp_path, monkeypatch):
    for age, key in enumerate(("newest", "middle", "oldest")):
        made = kept_copy(str(tmp_path), key, lambda: None, lambda path: open(os.path.join(path, "x"), "w").close())
        os.utime(made[0], (1000 - age, 1000 - age))
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
    with open(parent / "newest.lock") as lock, pytest.raises(Failure):
        fcntl.flock(lock, fcntl.LOCK_EX)  # as another process that fills the copy
        make_room(str(parent / "mine.unfinished"), 40 << 30, "m")
    assert (parent / "newest").is_dir()
    free[0] = 20 << 30
    with pytest.raises(Failure, match="Failed to copy m: it needs 42.9 GB, and the disk of .* has 21.5 GB free"):
        make_room(str(parent / "mine.unfinished"), 40 << 30, "m")


def test_threads_that_need_the_same_model_copy_make_it_once(tmp_path):
    made, waiting = [], set()

    def wait():
        waiting.add(threading.get_ident())

    def fill(path):
        made.append(path)
        until(lambda: len(waiting) == 3)
        open(os.path.join(path, "x"), "w").close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: kept_copy(str(tmp_path), "a", wait, fill), range(4)))
    assert len(made) == 1
    assert os.listdir(tmp_path / "models" / "a") == ["x"]


def test_the_bytes_of_a_model_in_a_bucket_are_counted(storage, tmp_path, model_folder):
    upload(storage, model_folder)
    for own, way in ((BUCKET, "bucket_bytes"), ("another-bucket", "other_bytes")):
        home = tmp_path / own
        home.mkdir()
        counted = Downloads(str(home), 3, own)
        source = objects.Bucket(objects.make_client("local"), BUCKET, downloads=counted)
        found = find_model(GS, str(home), source)
        for file in found.weights:
            file.read_into(0, memoryview(bytearray(file.size_bytes)))
        sizes = {name: len(storage.data(BUCKET, f"models/tiny/{name}")) for name in found.files}
        assert counted.report() == {"nat_bytes": 0, "bucket_bytes": 0, "other_bytes": 0} | {way: sum(sizes.values())}
