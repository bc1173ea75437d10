"""A token from Secret Manager, read with the VM's service account."""

import base64
import logging
import traceback

import pytest

from build import fails
from gleaner_worker import secret
from gleaner_worker.agent import metadata
from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.secret import is_secret_name, read_token
from hub_secret import NAME, TOKEN


def read(name=NAME):
    return read_token(name, metadata.Credentials(), lambda: None)


def test_the_latest_version_is_read_with_the_service_account_of_the_vm(secrets):
    assert read() == TOKEN
    assert secrets.requests == [(f"/v1/{NAME}/versions/latest:access", "Bearer t")]


def test_a_named_version_is_read(secrets):
    secrets.versions[f"{NAME}/versions/7"] = b"hf_seventh"
    assert read(f"{NAME}/versions/7") == "hf_seventh"


def test_a_newline_at_the_end_of_a_secret_is_removed(secrets):
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
def test_a_token_is_read_after_temporary_errors(secrets, fault):
    secrets.faults = lambda path: fault if len(secrets.requests) < 3 else None
    assert read() == TOKEN
    assert len(secrets.requests) == 3


@pytest.mark.parametrize("crc", ["1", None, "x"])
def test_a_secret_with_a_wrong_checksum_is_refused(secrets, crc, monkeypatch):
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    secrets.faults = lambda path: secrets.answer(TOKEN.encode(), dataCrc32c=crc)
    with fails("infrastructure", f"Failed to read the secret {NAME}/versions/latest: .* checksum; gave up"):
        read()


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
def test_an_unreadable_secret_is_reported_with_the_remedy(secrets, answer, kind, reason, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    secrets.versions[f"{NAME}/versions/latest"] = answer
    if isinstance(answer, bytes) and not answer:
        secrets.faults = lambda path: secrets.answer(b"")
    with fails(kind, f"the secret {NAME}/versions/latest.*{reason}") as failure:
        read()
    shown = "".join(traceback.format_exception(failure.value)) + caplog.text
    assert TOKEN not in shown
    assert base64.b64encode(TOKEN.encode())[:20].decode() not in shown


@pytest.mark.parametrize(
    ("variable", "closed_port", "reason"),
    [
        ("SECRETMANAGER_EMULATOR_HOST", "http://127.0.0.1:9", "Secret Manager does not answer .ConnectionError."),
        ("GCE_METADATA_HOST", "127.0.0.1:9", "this VM gets no access token"),
    ],
)
def test_an_unreachable_secret_manager_or_metadata_server_is_a_failure(
    secrets, monkeypatch, variable, closed_port, reason
):
    monkeypatch.setattr(secret, "GIVE_UP_AFTER_S", 0.05)
    monkeypatch.setenv(variable, closed_port)
    with fails("infrastructure", f"{reason}; gave up"):
        read()
    assert secrets.requests == []


def test_a_lost_lease_ends_the_retries_of_a_read(secrets):
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
def test_names_of_secrets_are_recognised(secrets, name, expected):
    assert is_secret_name(name) is expected
    if not expected:
        with pytest.raises(Failure, match="its name is not projects/P/secrets/S") as failure:
            read(name)
        assert TOKEN not in str(failure.value)
        assert secrets.requests == []
