"""The token of a hub: sent to the hub alone, and never shown."""

import logging

import pytest

from build import bucket
from gleaner_worker.failures import Failure
from gleaner_worker.model.files import download
from gleaner_worker.model.files.hub import Hub, own_hub
from gleaner_worker.model.files.model_source import find_model
from hub_models import REPO, TOKEN, files_with, find, once


def test_the_token_goes_to_the_hub_and_to_no_redirect(hub, tmp_path, files, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password a-word\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    hub.tokens[REPO] = {TOKEN}
    hub.faults = once(503, ("cut", 1000))
    find(hub, tmp_path, token=TOKEN)
    sent = {(server, headers.get("authorization")) for server, _, _, headers in hub.requests}
    assert sent == {("hub", f"Bearer {TOKEN}"), ("cdn", None)}
    assert TOKEN not in caplog.text
    assert "of-the-cdn" not in caplog.text  # the signature, which opens the file to anyone
    assert TOKEN not in repr(Hub(hub.url(), lambda check: TOKEN))
    assert files_with(TOKEN, tmp_path) == []


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


def test_a_named_hub_gets_no_token_from_the_environment(hub, tmp_path, files, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    find(hub, tmp_path)
    assert {headers.get("authorization") for _, _, _, headers in hub.requests} == {None}


def test_environment_variables_set_the_hub_and_token_when_no_hub_is_named(hub, tmp_path, files, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", hub.url())
    find_model(REPO, str(tmp_path), bucket())
    assert hub.requests[0][3]["authorization"] == f"Bearer {TOKEN}"
    assert own_hub().endpoint == hub.url()


# test_addresses.py has the addresses that a hub may have.
@pytest.mark.parametrize("url", ["http://mirror.example", "https://user:password@mirror.example", "mirror.example"])
def test_a_token_never_travels_unencrypted(url):
    def token(check):
        raise AssertionError("the token is read")

    with pytest.raises(Failure, match="it is not an https:// address; correct GLEANER_HF_ENDPOINT"):
        find_model(REPO, "", None, hub=Hub(url, token))
