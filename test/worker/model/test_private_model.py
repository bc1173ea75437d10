"""A private model: from the VM's metadata over the secret to the hub, without showing the token."""

import json
import logging
import os

import pytest

from build import BUCKET, a_stream, a_work_answer, bucket, text_lines
from fake_cloud import boot
from fake_hub import FakeHub
from gleaner_worker.agent import metadata
from gleaner_worker.failures import Failure
from gleaner_worker.model.files.hub import DEFAULT_ENDPOINT, worker_hub
from gleaner_worker.model.files.model_source import find_model
from hub_models import files_with
from hub_secret import TOKEN

pytestmark = pytest.mark.slow


def test_the_metadata_names_the_hub_and_its_token_is_read_on_demand(secrets, cloud, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert metadata.load_identity({}).hf_endpoint is None
    assert worker_hub(None, secrets.read).endpoint == DEFAULT_ENDPOINT
    monkeypatch.setenv("HF_ENDPOINT", "https://environment.example")
    assert worker_hub(None, secrets.read).endpoint == "https://environment.example"
    cloud.attributes |= {"gleaner-hf-endpoint": "https://mirror.example"}
    hub = worker_hub(metadata.load_identity({}).hf_endpoint, secrets.read)
    assert secrets.asked == 0
    assert (hub.endpoint, hub.token(lambda: None)) == ("https://mirror.example", TOKEN)
    assert secrets.asked == 1 and TOKEN not in repr(hub)


@pytest.mark.parametrize(
    ("attribute", "value", "problem"),
    [
        (
            "gleaner-hf-endpoint",
            "http://mirror.example",
            "gleaner-hf-endpoint is 'http://mirror.example', not an https://",
        ),
        ("gleaner-git-host", "user@github.com", "gleaner-git-host is 'user@github.com', not a host"),
    ],
)
def test_wrong_metadata_is_reported(cloud, monkeypatch, attribute, value, problem):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    cloud.attributes |= {attribute: value}
    del cloud.attributes["gleaner-bucket"]
    with pytest.raises(SystemExit, match=f"gleaner-bucket is missing; metadata attribute {problem}"):
        metadata.load_identity({})


@pytest.fixture
def private_hub(cloud, tiny_folder):
    """A hub whose only model needs the token; the VM's metadata name the hub."""
    server = FakeHub()
    files = {}
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        with open(f"{tiny_folder}/{name}", "rb") as file:
            files[name] = file.read()
    server.put("an-org/closed", files)
    server.tokens["an-org/closed"] = {TOKEN}
    cloud.attributes |= {"gleaner-hf-endpoint": server.url()}
    yield server
    server.close()


def test_a_private_model_is_downloaded_with_the_token_of_the_secret(secrets, private_hub, storage, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    hub = worker_hub(private_hub.url(), secrets.read)
    found = find_model("an-org/closed", str(tmp_path), bucket(), hub=hub)
    assert found.files.keys() == {"config.json", "tokenizer.json", "model.safetensors"}
    assert TOKEN not in caplog.text
    find_model("an-org/closed", str(tmp_path), bucket(), revision=found.revision, hub=hub)
    assert secrets.asked == 1  # a copy on the disk needs no token
    secrets.problem = "worker-api may not read it"
    with pytest.raises(Failure, match="worker-api may not read it"):
        find_model("an-org/closed", str(tmp_path), bucket(), hub=hub)


def test_an_agent_extracts_with_a_private_model_and_never_shows_the_token(private_hub, cloud, storage, tmp_path, forks):
    spec = {"model": "an-org/closed", "revision": None}
    cloud.given = lambda lease: {"hub": TOKEN} if lease["stream"] == "007" else {}
    cloud.leases = [
        a_work_answer(a_stream(storage, text_lines(20)), **spec),
        a_work_answer(a_stream(storage, text_lines(5), stream="008"), stream="008", epoch=2, **spec),
    ]
    boot(tmp_path / "home")
    env = os.environ | {"GLEANER_HOME": str(tmp_path / "home"), "GCE_METADATA_HOST": cloud.host}
    said = forks.run("forked_agent:run", None, environment=env).stderr
    assert [(release["outcome"], release["failure"]) for release in cloud.releases()] == [("completed", None)] * 2, said
    lock = json.loads(storage.data(BUCKET, "activations/my-run/model.json"))
    assert lock["revision"] == private_hub.branches["an-org/closed"]["main"]
    assert (
        storage.metadata(BUCKET, "activations/my-run/tpu_7/shard_0001.safetensors")["model_fingerprint"]
        == (lock["fingerprint"])
    )
    requests = [body for body in cloud.asked if body["action"] == "secrets"]
    assert [body["lease"] for body in requests] == [{"run": "my-run", "stream": "007", "epoch": 1}]
    assert {headers.get("authorization") for where, _, _, headers in private_hub.requests if where == "cdn"} == {None}
    everything = [said, repr(cloud.asked), *map(repr, storage.objects.values())]
    assert not any(TOKEN in text for text in everything)
    assert files_with(TOKEN, tmp_path) == []
