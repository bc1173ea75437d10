"""Downloads from a hub that are interrupted, slow, or ended."""

import json
import os

import pytest

from build import fails
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model.files import download
from gleaner_worker.model.files.hub import Hub
from gleaner_worker.model.files.model_source import find_model
from hub_models import REPO, USED, files_of, find, kept, once

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(download, "PIECE_BYTES", 10_000)


def test_a_broken_download_resumes(hub, tmp_path, files):
    hub.faults = once(("cut", 40_000), ("cut", 30_000))
    assert files_of(find(hub, tmp_path).folder) == files
    ranges = [headers.get("range") for server, _, _, headers in hub.requests if server == "cdn"]
    assert ranges == [None, "bytes=40000-", "bytes=70000-"]
    assert hub.sent == len(files["model.safetensors"])


def test_an_interrupted_download_resumes_in_the_next_attempt(hub, tmp_path, files):
    hub.faults = once(("slow", 0.01))

    def received():
        return sum(part.stat().st_size for part in tmp_path.glob("models/*/model.safetensors.part"))

    def check():
        if hub.sent > 50_000 and received() > 0:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        find(hub, tmp_path, check=check)
    begin = received()
    assert 0 < begin < len(files["model.safetensors"])
    assert files_of(find(hub, tmp_path).folder) == files
    assert [headers.get("range") for server, _, _, headers in hub.requests if server == "cdn"][-1] == f"bytes={begin}-"


def test_an_unfinished_copy_with_any_content_is_completed(hub, tmp_path, files):
    folder = find(hub, tmp_path).folder
    size = len(files["model.safetensors"])
    for left in (b"x" * 10, b"x" * size, b"x" * (size + 1), b""):
        os.rename(folder, f"{folder}.unfinished")
        os.remove(os.path.join(f"{folder}.unfinished", "model.safetensors"))
        with open(os.path.join(f"{folder}.unfinished", "model.safetensors.part"), "wb") as file:
            file.write(left)
        assert files_of(find(hub, tmp_path).folder) == files


A_LONG_WAIT = ("limited", 1000)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("where", "answer"),
    [
        *[("/api/", 503), ("/resolve/", 503), ("hub", A_LONG_WAIT), ("cdn", A_LONG_WAIT)],
        *(("cdn", status) for status in (408, 429, 500, 502, 503, 504)),
    ],
)
def test_a_download_continues_soon_after_two_outages_or_requests_for_a_long_wait(hub, tmp_path, files, where, answer):
    left = [answer] * 2
    hub.faults = lambda server, method, path: left.pop() if left and (where == server or where in path) else None
    assert sorted(find(hub, tmp_path).files) == USED
    assert left == []


def test_a_long_outage_of_the_hub_fails_the_download(hub, tmp_path, files, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 0.4)
    monkeypatch.setattr(download, "FIRST_GIVE_UP_AFTER_S", 0.4)
    hub.faults = lambda server, method, path: 503 if server == "cdn" else None
    reason = f"Failed to download the model {REPO}: it answers 503; let this machine reach {hub.url()}; try again, or"
    with fails("hub", reason):
        find(hub, tmp_path)
    with fails("hub", "ConnectionRefusedError.*let this machine reach http://127.0.0.1:9;"):
        find_model(REPO, str(tmp_path), None, hub=Hub("http://127.0.0.1:9"))
    assert all(name.endswith(".unfinished") for name in kept(tmp_path))


def test_a_download_that_is_too_slow_fails(hub, tmp_path, files, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 0.4)
    monkeypatch.setattr(download, "FIRST_GIVE_UP_AFTER_S", 0.4)
    hub.faults = lambda server, method, path: ("slow", 0.1) if server == "cdn" else None
    with pytest.raises(Failure, match="model.safetensors arrives too slowly"):
        find(hub, tmp_path)


def test_a_lost_lease_ends_the_wait_for_the_hub(hub, tmp_path, files):
    hub.faults = lambda server, method, path: 503
    asked = []

    def check():
        asked.append(1)
        if len(asked) > 2:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        find(hub, tmp_path, check=check)


def test_a_failed_file_ends_the_other_downloads_with_its_error(hub, tmp_path, files):
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    index = json.dumps({"weight_map": dict(zip("abc", names, strict=True))}).encode()
    shards = dict.fromkeys(names, bytes(300_000))
    others = {name: data for name, data in files.items() if name != "model.safetensors"}
    hub.put(REPO, others | shards | {"model.safetensors.index.json": index})

    def fault(server, method, path):
        if server != "cdn":
            return None
        return 418 if path.endswith(names[2]) else ("trickle", 0.05)

    hub.faults = fault
    with pytest.raises(Failure, match=rf"Failed to download the model {REPO}: .* answers 418"):
        find(hub, tmp_path)
