"""The hub's token: from Secret Manager, with the VM's service account, to the hub, and nowhere else."""

import base64
import json
import logging
import os
import subprocess
import sys
import traceback

import pytest

from build import BUCKET, a_stream, a_work_answer, bucket, text_lines
from fake_hub import FakeHub
from fake_secrets import FakeSecrets
from gleaner_worker import metadata, secret
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model.hub import DEFAULT_ENDPOINT, worker_hub
from gleaner_worker.model.model_source import find_model
from gleaner_worker.secret import is_secret_name, read_token

pytestmark = pytest.mark.slow

NAME = "projects/a-project/secrets/hub-token"
TOKEN = "hf_TokenOfTheTestThatNobodyMaySee"


@pytest.fixture
def secrets(monkeypatch, cloud):
    """Secret Manager, and the metadata server that gives the VM its access token."""
    fake = FakeSecrets()
    fake.versions[f"{NAME}/versions/latest"] = TOKEN.encode()
    monkeypatch.setenv("SECRETMANAGER_EMULATOR_HOST", fake.url)
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    monkeypatch.setattr(secret, "FIRST_WAIT_S", 0.02)
    yield fake
    fake.close()


def read(name=NAME):
    return read_token(name, metadata.Credentials())


def test_the_latest_version_is_read_as_the_vm_s_own_service_account(secrets):
    assert read() == TOKEN
    assert secrets.requests == [(f"/v1/{NAME}/versions/latest:access", "Bearer t")]


def test_a_version_that_is_named_is_read(secrets):
    secrets.versions[f"{NAME}/versions/7"] = b"hf_seventh"
    assert read(f"{NAME}/versions/7") == "hf_seventh"


def test_a_newline_at_its_end_is_no_part_of_a_token(secrets):
    secrets.versions[f"{NAME}/versions/latest"] = f"{TOKEN}\n".encode()
    assert read() == TOKEN


@pytest.mark.parametrize(
    "fault",
    [
        503,
        429,
        500,
        b"<html>",
        b"{}",
        b'{"payload": {}}',
        b'{"payload": {"data": "!", "dataCrc32c": "1"}}',
        b'{"payload": 1}',
    ],
)
def test_what_passes_is_waited_for(secrets, fault):
    secrets.faults = lambda path: fault if len(secrets.requests) < 3 else None
    assert read() == TOKEN
    assert len(secrets.requests) == 3


@pytest.mark.parametrize("crc", ["1", None, "x"])
def test_bytes_that_do_not_match_their_checksum_are_not_a_token(secrets, crc, monkeypatch):
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    secrets.faults = lambda path: secrets.answer(TOKEN.encode(), dataCrc32c=crc)
    with pytest.raises(
        Failure, match=f"Failed to read the secret {NAME}/versions/latest: .* checksum; gave up"
    ) as failure:
        read()
    assert failure.value.kind == "infrastructure"


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (403, "model", "give the worker's service account the role roles/secretmanager.secretAccessor on it"),
        (401, "model", "roles/secretmanager.secretAccessor"),
        (404, "model", "there is no such secret or version; create it, or correct GLEANER_HF_TOKEN_SECRET"),
        (400, "model", "that version is disabled or destroyed; add a new one"),
        (302, "model", "Secret Manager answers 302"),
        (503, "infrastructure", "Secret Manager answers 503; gave up after 0 s"),
        (
            f"{TOKEN} and more".encode(),
            "model",
            "its 42 bytes are not one word of printable ASCII; store the token itself",
        ),
        (b"", "model", "its 0 bytes are not one word"),
        (b"\xff\xfe" + TOKEN.encode(), "model", "its 35 bytes are not one word"),
        (f"{TOKEN}\r\nx-evil: 1".encode(), "model", "bytes are not one word"),
        (b"h" * 70_000, "model", "its 70000 bytes"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_do(secrets, answer, kind, reason, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    secrets.versions[f"{NAME}/versions/latest"] = answer
    if isinstance(answer, bytes) and not answer:
        secrets.faults = lambda path: secrets.answer(b"")
    with pytest.raises(Failure, match=f"the secret {NAME}/versions/latest.*{reason}") as failure:
        read()
    assert failure.value.kind == kind
    shown = "".join(traceback.format_exception(failure.value)) + caplog.text
    assert TOKEN not in shown
    assert base64.b64encode(TOKEN.encode())[:20].decode() not in shown


def test_a_manager_that_does_not_answer_is_given_up(secrets, monkeypatch):
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    monkeypatch.setenv("SECRETMANAGER_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(Failure, match="Secret Manager does not answer .ConnectionError.; gave up") as failure:
        read()
    assert failure.value.kind == "infrastructure"


def test_a_vm_without_an_access_token_says_so(secrets, monkeypatch):
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(Failure, match="this VM gets no access token; gave up") as failure:
        read()
    assert failure.value.kind == "infrastructure"
    assert secrets.requests == []


def test_a_lost_lease_ends_the_waiting(secrets):
    secrets.faults = lambda path: 503

    def check():
        if len(secrets.requests) > 1:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        read_token(NAME, metadata.Credentials(), check)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (NAME, True),
        (f"{NAME}/versions/7", True),
        (f"{NAME}/versions/latest", True),
        ("projects/123456/secrets/S_1", True),
        ("projects/example.com:a-project/secrets/s", True),
        ("hub-token", False),
        (TOKEN, False),
        ("projects/p/secrets/s/versions/1/x", False),
        ("projects/p/secrets/../x", False),
        ("projects/p/secrets/s?alt=media", False),
        ("projects/p/secrets/s#", False),
        ("projects/P/secrets/s", False),
        ("projects/p/secrets/s\n", False),
        ("projects//secrets/s", False),
        ("", False),
    ],
)
def test_a_secret_s_name_is_told_from_anything_else(secrets, name, expected):
    assert is_secret_name(name) is expected
    if not expected:
        with pytest.raises(Failure, match="its name is not projects/P/secrets/S") as failure:
            read(name)
        assert TOKEN not in str(failure.value)
        assert secrets.requests == []


# --- from the VM's metadata to the hub -------------------------------------------------------------------------------


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
    assert secrets.requests == []  # nothing is read before it is needed
    assert (hub.endpoint, hub.token()) == ("https://mirror.example", TOKEN)
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
def test_metadata_that_is_wrong_is_told_and_a_token_put_there_is_not_shown(secrets, cloud, attribute, value, problem):
    cloud.attributes |= {attribute: value}
    del cloud.attributes["gleaner-bucket"]
    with pytest.raises(SystemExit, match=f"gleaner-bucket is missing; metadata attribute {problem}") as error:
        metadata.load_identity({})
    assert TOKEN not in str(error.value)


@pytest.fixture
def private_hub(cloud, tiny_folder):
    """A hub that shows its one model only to whoever has the token; the VM's metadata names it and the secret."""
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


def test_a_private_model_is_downloaded_with_the_secret_s_token(secrets, private_hub, storage, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    identity = metadata.load_identity({})
    hub = worker_hub(identity.hf_endpoint, identity.hf_token_secret, metadata.Credentials())
    found = find_model("an-org/closed", str(tmp_path), bucket(), hub=hub)
    assert found.files.keys() == {"config.json", "tokenizer.json", "model.safetensors"}
    assert TOKEN not in caplog.text
    asked = len(secrets.requests)
    find_model("an-org/closed", str(tmp_path), bucket(), revision=found.revision, hub=hub)
    assert len(secrets.requests) == asked == 1  # what is here needs no token
    secrets.versions[f"{NAME}/versions/latest"] = 403
    with pytest.raises(Failure, match="secretAccessor"):
        find_model("an-org/closed", str(tmp_path), bucket(), hub=hub)


def test_a_real_agent_extracts_with_a_private_model_and_shows_the_token_to_nobody(
    secrets, private_hub, cloud, storage, tmp_path
):
    spec = {"model": "an-org/closed", "revision": None}
    cloud.leases = [
        a_work_answer(a_stream(storage, text_lines(20)), **spec),
        a_work_answer(a_stream(storage, text_lines(5), stream="008"), stream="008", epoch=2, **spec),
    ]
    env = os.environ | {"GLEANER_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gleaner_worker.agent"], env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
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
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert TOKEN.encode() not in file.read()
