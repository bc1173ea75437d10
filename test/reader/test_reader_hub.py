"""A run that is published on a hub is there byte for byte, also after an interruption, and its copy is verified."""

import base64
import hashlib
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import huggingface_hub._commit_api  # noqa: F401  imported before its names are replaced
import pytest

import gleaner_reader
from gleaner_reader.export import to_hub
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.verify import verify
from local_server import Handler, LocalServer
from stored_run import store_run, summarise

REPO = "me/my-run"


class Receiver:
    """The hub as a person uploads to it: a dataset, the files of its head, and large files by their digest."""

    def __init__(self):
        self.private, self.files, self.large = None, {}, {}
        self.puts, self.asked = Counter(), itertools.count()  # several uploads come at once
        self.commits = 0
        self.refuses_commit = self.loses_upload = None
        self._server = LocalServer(self._handler())
        self.url = self._server.url

    def close(self):
        self._server.close()

    def answer(self, method, path, body):
        repo = f"/api/datasets/{REPO}"
        if path == "/api/repos/create":
            given = json.loads(body)
            assert (given["type"], f"{given.get('organization') or 'me'}/{given['name']}") == ("dataset", REPO)
            url = {"url": f"{self.url}/datasets/{REPO}"}
            if self.private is not None:
                return 409, url | {"error": "You already created this dataset repo"}
            self.private = given["visibility"] == "private"
            return 200, url
        if path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\npretty_name: ")
            return 200, {"errors": [], "warnings": []}
        if path.startswith(f"{repo}/tree/main"):
            return 200, [self._entry(name, data) for name, data in self.files.items()]
        if path == f"{repo}/preupload/main":
            return 200, {"files": [self._known(file["path"]) for file in json.loads(body)["files"]]}
        if path == f"/datasets/{REPO}.git/info/lfs/objects/batch":
            return 200, {"objects": [self._upload_of(each) for each in json.loads(body)["objects"]]}
        if match := re.fullmatch("/lfs/(.+)", path):
            if next(self.asked) == self.loses_upload:
                return 400, {"error": "the storage is away"}
            assert method == "PUT" and hashlib.sha256(body).hexdigest() == match[1]
            self.puts[match[1]] += 1
            self.large[match[1]] = body
            return 200, {}
        if path == f"{repo}/commit/main":
            return self._commit([json.loads(line) for line in body.splitlines()])
        if path.split("?")[0] in (repo, f"{repo}/revision/main"):
            return 200, {"id": REPO, "private": self.private, "sha": "1"}
        return 404, {"error": "no such page"}

    def _commit(self, lines):
        self.commits += 1
        if self.commits == self.refuses_commit:
            return 403, {"error": "the token may not write"}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.files[value["path"]] = self.large[value["oid"]]
        return 200, {"commitUrl": f"{self.url}/datasets/{REPO}/commit/1", "commitOid": "1"}

    def _known(self, name):
        entry = self._entry(name, self.files[name]) if name in self.files else {}
        oid = entry.get("lfs", entry).get("oid")
        return {"path": name, "uploadMode": mode_of(name), "shouldIgnore": False} | ({"oid": oid} if oid else {})

    def _entry(self, name, data):
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"type": "file", "path": name, "size": len(data), "oid": blob}
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return entry | ({"lfs": lfs} if mode_of(name) == "lfs" else {})

    def _upload_of(self, each):
        actions = {"upload": {"href": f"{self.url}/lfs/{each['oid']}"}}
        return each | ({} if each["oid"] in self.large else {"actions": actions})

    def _handler(self):
        receiver = self

        class Handles(Handler):
            def do_any(self):
                status, answer = receiver.answer(self.command, self.path, self.read_body())
                self.send(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

            do_GET = do_POST = do_PUT = do_any

        return Handles


def mode_of(name):
    return "lfs" if name.endswith(".safetensors") else "regular"


@pytest.fixture
def receiver(monkeypatch):
    server = Receiver()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
    # The receiver has no storage of chunks, so large files go to it whole.
    monkeypatch.setattr("huggingface_hub._commit_api.is_xet_available", lambda: False)
    yield server
    server.close()


@pytest.fixture
def stored(tmp_path):
    folder = tmp_path / "my-run"
    store_run(folder, count=12)
    summarise(folder)
    return folder


def test_a_published_run_has_every_byte_and_a_card_and_is_verified(receiver, stored, tmp_path):
    seen = []
    found = to_hub(
        gleaner_reader.open(str(stored)), REPO, token="t", progress=lambda done, total: seen.append((done, total))
    )
    names = {path.relative_to(stored).as_posix() for path in stored.rglob("*") if path.is_file()}
    assert set(receiver.files) == names | {"README.md"} and found.files == found.uploaded == len(names) + 1
    assert found.private is receiver.private is True and seen[-1] == (found.size_bytes, found.size_bytes)
    for name, data in receiver.files.items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(data)
    copied = verify(open_folder(str(tmp_path / "copy")))
    assert (copied.ok, copied.digest) == (True, found.digest)
    assert found.digest in receiver.files["README.md"].decode()
    again = to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    assert (again.uploaded, set(receiver.puts.values())) == (0, {1})


def test_an_interrupted_call_goes_on_and_the_manifest_comes_last(receiver, stored, monkeypatch):
    monkeypatch.setattr("gleaner_reader.export.hub._COMMIT_FILES", 3)
    receiver.refuses_commit = 2
    with pytest.raises(OSError, match="the token may not write"):
        to_hub(gleaner_reader.open(str(stored)), REPO, private=False, token="t")
    assert len(receiver.files) == 3 and "manifest.json" not in receiver.files
    found = to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    assert found.private is False and found.uploaded == found.files - 3
    assert set(receiver.puts.values()) == {1} and "manifest.json" in receiver.files


def test_an_upload_that_is_lost_is_an_error_that_says_how_it_goes_on(receiver, stored):
    receiver.loses_upload = 2
    with pytest.raises(OSError, match="was interrupted: .*the storage is away.*; call it again"):
        to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    receiver.loses_upload = None
    to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    assert set(receiver.puts.values()) == {1} and "manifest.json" in receiver.files


def test_a_copy_from_a_hub_is_published_without_its_card_and_the_files_of_the_download(receiver, stored):
    (stored / "README.md").write_text("another card")
    (stored / ".cache").mkdir()
    (stored / ".cache" / "entry").write_text("of the download")
    found = to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    assert found.files == found.uploaded == len(receiver.files) and ".cache/entry" not in receiver.files


def test_a_name_without_a_namespace_is_that_of_the_token(receiver, stored):
    found = to_hub(gleaner_reader.open(str(stored)), "my-run", token="t")
    assert found.repo == REPO and found.uploaded == len(receiver.files)
    assert f'snapshot_download("{REPO}"' in receiver.files["README.md"].decode()


@pytest.mark.parametrize("repo", ["../my-run", "a/b/c", "me/my run", "", "https://example.com/me/my-run"])
def test_a_name_that_is_none_of_a_dataset_is_refused_before_a_request(receiver, stored, repo):
    with pytest.raises(ValueError, match="Repo id must"):
        to_hub(gleaner_reader.open(str(stored)), repo, token="t")
    assert receiver.private is None


def test_a_run_that_is_not_complete_is_not_published(receiver, stored):
    (stored / "tpu_7/shard_0002.safetensors").unlink()
    with (
        pytest.warns(UserWarning),
        pytest.raises(ValueError, match="is not complete, and a dataset"),
    ):
        to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    assert receiver.private is None


def test_the_card_has_no_markup_of_the_run(receiver, stored):
    manifest = json.loads(Path(stored / "manifest.json").read_text())
    manifest["spec"] = {"model": "<img src=x>|[a](b)`\n# big"}
    (stored / "manifest.json").write_text(json.dumps(manifest))
    to_hub(gleaner_reader.open(str(stored)), REPO, token="t")
    card = receiver.files["README.md"].decode()
    assert "| model | img src=x a (b) # big |" in card
