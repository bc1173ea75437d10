"""Models on the fake hub: `hub` is the fixture, `find` gets a model from this hub."""

import os

import pytest

from build import bucket
from fake_hub import FakeHub
from gleaner_worker.model.files import download
from gleaner_worker.model.files.hub import Hub
from gleaner_worker.model.files.model_source import find_model

REPO = "an-org/a-model"
TOKEN = "hf_TokenOfTheTestThatNobodyMaySee"
USED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def hub(monkeypatch, storage):
    monkeypatch.setattr(download, "FIRST_WAIT_S", 0.02)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeHub()
    yield fake
    fake.close()


@pytest.fixture
def files(hub, tiny_folder):
    """The files of the model that the hub has."""
    found = files_of(tiny_folder)
    hub.put(REPO, found)
    return found


def files_of(folder, **changes):
    files = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            files[name] = file.read()
    return files | changes


def find(hub, home, model=REPO, revision=None, token=None, weights=True, check=lambda: None, report=lambda cause: None):
    where = Hub(hub.url(), lambda check: token, report)
    return find_model(model, str(home), bucket(check), revision=revision, hub=where, weights=weights)


def files_with(text, folder):
    """The files below the folder that hold the text."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def kept(home):
    return {name for name in os.listdir(home / "models") if not name.endswith(".lock")}


def once(*faults):
    """Applies each fault to one request of the CDN, in turn."""
    left = list(faults)
    return lambda server, method, path: left.pop(0) if server == "cdn" and left else None
