"""The token of a hub: sent to the hub alone, and never shown."""

import functools
import logging
import os

import pytest

from build import bucket
from gleaner_worker.failures import Failure
from gleaner_worker.model import download
from gleaner_worker.model.hub import Hub, is_endpoint, own_hub
from gleaner_worker.model.model_source import find_model
from hub_models import REPO, TOKEN, files_of, find, once

pytestmark = pytest.mark.slow


def test_the_token_goes_to_the_hub_and_to_no_redirect(hub, tmp_path, tiny_folder, caplog):
    caplog.set_level(logging.DEBUG)
    hub.put(REPO, files_of(tiny_folder))
    hub.tokens[REPO] = {TOKEN}
    hub.faults = once(503, ("cut", 1000))
    find(hub, tmp_path, token=TOKEN)
    sent = {(server, headers.get("authorization")) for server, _, _, headers in hub.requests}
    assert sent == {("hub", f"Bearer {TOKEN}"), ("cdn", None)}
    assert TOKEN not in caplog.text
    assert "of-the-cdn" not in caplog.text  # the signature, which opens the file to anyone
    assert TOKEN not in repr(Hub(hub.url(), functools.partial(str, TOKEN)))
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert TOKEN.encode() not in file.read()


def test_a_token_that_a_server_sends_back_stays_out_of_the_reason(hub, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 0.1)
    monkeypatch.setattr(download, "FIRST_GIVE_UP_AFTER_S", 0.1)
    hub.put(REPO, {"config.json": b"{}"})
    for status in (418, 500):
        hub._answer = lambda *_, status=status: (status, {"X-Error-Message": f"you sent {TOKEN}"}, TOKEN.encode())
        with pytest.raises(Failure) as failure:
            find(hub, tmp_path, token=TOKEN)
        assert TOKEN not in str(failure.value)
        assert failure.value.__suppress_context__ or failure.value.__context__ is None
    assert TOKEN not in caplog.text


def test_the_environment_of_the_machine_gives_no_token(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.put(REPO, files_of(tiny_folder))
    find(hub, tmp_path)
    assert {headers.get("authorization") for _, _, _, headers in hub.requests} == {None}


def test_settings_of_a_person_count_where_no_hub_is_named(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", hub.url())
    hub.put(REPO, files_of(tiny_folder))
    find_model(REPO, str(tmp_path), bucket())
    assert hub.requests[0][3]["authorization"] == f"Bearer {TOKEN}"
    assert own_hub().endpoint == hub.url()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://huggingface.co", True),
        ("https://mirror.example:8443/hub/", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost:8080", True),
        ("http://[::1]:8080", True),
        ("http://mirror.example", False),
        ("http://127.0.0.1.example", False),
        ("https://user:password@mirror.example", False),
        ("https://mirror.example?x=1", False),
        ("https://mirror.example#x", False),
        ("https://", False),
        ("https://[", False),
        ("ftp://mirror.example", False),
        ("mirror.example", False),
        ("https://mirror.example/a b", False),
    ],
)
def test_a_token_never_travels_unencrypted(url, expected):
    assert is_endpoint(url) is expected
    if not expected:
        with pytest.raises(Failure, match="it is not an https:// address; correct GLEANER_HF_ENDPOINT"):
            find_model(REPO, "", None, hub=Hub(url, lambda: TOKEN))
