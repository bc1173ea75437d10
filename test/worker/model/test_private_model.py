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
from hub_secret import NAME, TOKEN

pytestmark = pytest.mark.slow


def test_the_metadata_names_the_hub_and_the_secret(secrets, cloud, monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    identity = metadata.load_identity({})
    assert (identity.hf_endpoint, identity.hf_token_secret) == (None, None)
    assert worker_hub(None, None, metadata.Credentials()).endpoint == DEFAULT_ENDPOINT
    monkeypatch.setenv("HF_ENDPOINT", "https://environment.example")
    assert worker_hub(None, None, metadata.Credentials()).endpoint == "https://environment.example"
    cloud.attributes |= {"gleaner-hf-endpoint": "https://mirror.example", "gleaner-hf-token-secret": NAME}
    identity = metadata.load_identity({})
    assert (identity.hf_endpoint, identity.hf_token_secret) == ("https://mirror.example", NAME)
    hub = worker_hub(identity.hf_endpoint, identity.hf_token_secret, metadata.Credentials())
    assert secrets.requests == []  # the secret is read on demand
    assert (hub.endpoint, hub.token(lambda: None)) == ("https://mirror.example", TOKEN)
    assert TOKEN not in repr(hub) + repr(identity)


@pytest.mark.parametrize(
    ("attribute", "value", "problem"),
    [
        (
            "gleaner-hf-endpoint",
            "http://mirror.example",
            "gleaner-hf-endpoint is 'http://mirror.example', not an https://",
        ),
        ("gleaner-hf-token-secret", TOKEN, "gleaner-hf-token-secret is not named projects/P/secrets/S"),
    ],
)
def test_wrong_metadata_is_reported_and_a_token_in_it_is_not_shown(secrets, cloud, attribute, value, problem):
    cloud.attributes |= {attribute: value}
    del cloud.attributes["gleaner-bucket"]
    with pytest.raises(SystemExit, match=f"gleaner-bucket is missing; metadata attribute {problem}") as error:
        metadata.load_identity({})
    assert TOKEN not in str(error.value)


@pytest.fixture
def private_hub(cloud, tiny_folder):
    """A hub whose only model needs the token; the VM's metadata name the hub and the secret."""
    server = FakeHub()
    files = {}
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        with open(f"{tiny_folder}/{name}", "rb") as file:
            files[name] = file.read()
    server.put("an-org/closed", files)
    server.tokens["an-org/closed"] = {TOKEN}
    cloud.attributes |= {"gleaner-hf-endpoint": server.url(), "gleaner-hf-token-secret": NAME}
    yield server
    server.close()


def test_a_private_model_is_downloaded_with_the_token_of_the_secret(secrets, private_hub, storage, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    identity = metadata.load_identity({})
    hub = worker_hub(identity.hf_endpoint, identity.hf_token_secret, metadata.Credentials())
    found = find_model("an-org/closed", str(tmp_path), bucket(), hub=hub)
    assert found.files.keys() == {"config.json", "tokenizer.json", "model.safetensors"}
    assert TOKEN not in caplog.text
    asked = len(secrets.requests)
    find_model("an-org/closed", str(tmp_path), bucket(), revision=found.revision, hub=hub)
    assert len(secrets.requests) == asked == 1  # a copy on the disk needs no token
    secrets.versions[f"{NAME}/versions/latest"] = 403
    with pytest.raises(Failure, match="secretAccessor"):
        find_model("an-org/closed", str(tmp_path), bucket(), hub=hub)


def test_an_agent_extracts_with_a_private_model_and_never_shows_the_token(
    secrets, private_hub, cloud, storage, tmp_path, forks
):
    spec = {"model": "an-org/closed", "revision": None}
    cloud.leases = [
        a_work_answer(a_stream(storage, text_lines(20)), **spec),
        a_work_answer(a_stream(storage, text_lines(5), stream="008"), stream="008", epoch=2, **spec),
    ]
    boot(tmp_path / "home")
    env = os.environ | {"GLEANER_HOME": str(tmp_path / "home")}
    said = forks.run("forked_agent:run", None, environment=env).stderr
    assert [(release["outcome"], release["failure"]) for release in cloud.releases()] == [("completed", None)] * 2, said
    lock = json.loads(storage.data(BUCKET, "activations/my-run/model.json"))
    assert lock["revision"] == private_hub.branches["an-org/closed"]["main"]
    assert (
        storage.metadata(BUCKET, "activations/my-run/tpu_7/shard_0001.safetensors")["model_fingerprint"]
        == (lock["fingerprint"])
    )
    assert len(secrets.requests) == 1
    assert {headers.get("authorization") for where, _, _, headers in private_hub.requests if where == "cdn"} == {None}
    everything = [said, repr(cloud.asked), repr(secrets.requests), *map(repr, storage.objects.values())]
    assert not any(TOKEN in text for text in everything)
    assert files_with(TOKEN, tmp_path) == []
