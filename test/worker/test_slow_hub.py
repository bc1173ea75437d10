"""A hub that answers byte by byte, or not at all: a cause in the status, an end, and a drain within seconds."""

import time
from urllib.parse import urlsplit

import pytest

from gleaner_worker.failures import Failure, LeaseLost
from gleaner_worker.model import download
from hub_models import REPO, files_of, find, once

pytestmark = pytest.mark.slow

LISTING = ("hub", "GET", "/api/")
METADATA = ("hub", "HEAD", "model.safetensors")
WEIGHTS = ("cdn", "GET", "model.safetensors")
BYTE_EVERY_S = 0.02
SLOW_ANSWERS = [
    (LISTING, ("trickle", BYTE_EVERY_S)),
    (LISTING, ("trickled head", BYTE_EVERY_S)),
    (METADATA, ("trickled head", BYTE_EVERY_S)),
    (WEIGHTS, ("trickle", BYTE_EVERY_S)),
    (WEIGHTS, ("trickled head", BYTE_EVERY_S)),
]
SILENT_ANSWERS = [(request, ("silent", 5.0)) for request in (LISTING, METADATA, WEIGHTS)]


def asks(request, asked):
    return request[:2] == asked[:2] and request[2] in asked[2]


@pytest.mark.parametrize(("slow_request", "fault"), SLOW_ANSWERS + SILENT_ANSWERS)
def test_a_lost_lease_ends_a_request_to_a_slow_or_silent_hub(hub, tmp_path, tiny_folder, slow_request, fault):
    hub.put(REPO, files_of(tiny_folder))
    lost_at = []

    def answer(*asked):
        if not asks(slow_request, asked):
            return None
        lost_at.append(time.monotonic())
        return fault

    def check():
        if lost_at:
            raise LeaseLost

    hub.faults = answer
    with pytest.raises(LeaseLost):
        find(hub, tmp_path, check=check)
    assert time.monotonic() - lost_at[0] < 2


@pytest.mark.parametrize(("slow_request", "fault"), SLOW_ANSWERS)
def test_a_slow_hub_is_reported_and_fails_as_an_unreachable_hub(
    hub, tmp_path, tiny_folder, monkeypatch, slow_request, fault
):
    for limit in ("ANSWER_S", "PIECE_S"):
        monkeypatch.setattr(download, limit, 0.1)
    for limit in ("GIVE_UP_AFTER_S", "FIRST_GIVE_UP_AFTER_S"):
        monkeypatch.setattr(download, limit, 0.5)
    hub.put(REPO, files_of(tiny_folder))
    hub.faults = lambda *asked: fault if asks(slow_request, asked) else None
    causes = []
    reason = f"Failed to download the model {REPO} from {hub.url()}: .*; let this machine reach it, or copy the model"
    with pytest.raises(Failure, match=reason) as failure:
        find(hub, tmp_path, report=causes.append)
    assert failure.value.kind == "infrastructure"
    assert causes[0].startswith(f"{urlsplit(hub.url()).netloc}: TimeoutError: ") and causes[0].endswith(", try 1")


def test_a_slow_transfer_resumes_on_another_connection_with_the_received_bytes(hub, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setattr(download, "PIECE_S", 0.2)
    files = files_of(tiny_folder)
    hub.put(REPO, files)
    hub.faults = once(("trickle", BYTE_EVERY_S))
    assert files_of(find(hub, tmp_path).folder) == files
    first, second, *_ = (headers.get("range") for server, _, _, headers in hub.requests if server == "cdn")
    assert first is None and 0 < int(second.removeprefix("bytes=").removesuffix("-")) < 100
