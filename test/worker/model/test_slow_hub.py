"""A hub that answers byte by byte, or not at all: a cause in the status, and an end."""

from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from build import fails
from gleaner_worker.failures import LeaseLost
from gleaner_worker.model.files import download
from hub_models import REPO, files_of, find, once

pytestmark = pytest.mark.slow

LISTING = ("hub", "GET", "/api/")
WEIGHTS = ("cdn", "GET", "model.safetensors")
BYTE_EVERY_S = 0.02
SLOW_ANSWERS = [
    (LISTING, ("trickle", BYTE_EVERY_S)),
    (LISTING, ("trickled head", BYTE_EVERY_S)),
    (WEIGHTS, ("trickle", BYTE_EVERY_S)),
    (WEIGHTS, ("trickled head", BYTE_EVERY_S)),
]
SILENT_ANSWERS = [(request, ("silent", 0)) for request in (LISTING, WEIGHTS)]


def asks(request, asked):
    return request[:2] == asked[:2] and request[2] in asked[2]


@pytest.mark.parametrize(("slow_request", "fault"), SLOW_ANSWERS + SILENT_ANSWERS)
def test_a_lost_lease_ends_a_request_to_a_slow_or_silent_hub(hub, tmp_path, files, slow_request, fault):
    is_lost = []

    def answer(*asked):
        if not asks(slow_request, asked):
            return None
        is_lost.append(True)
        return fault

    def check():
        if is_lost:
            raise LeaseLost

    hub.faults = answer
    with pytest.raises(LeaseLost):
        find(hub, tmp_path, check=check)


@pytest.mark.parametrize(("slow_request", "fault"), SLOW_ANSWERS)
def test_a_slow_hub_is_reported_and_fails_as_an_unreachable_hub(hub, tmp_path, files, monkeypatch, slow_request, fault):
    causes = []
    monkeypatch.setattr(download, "ANSWER_S", 0.1)
    # The time of the download is over after two reports.
    monkeypatch.setattr(download, "time", SimpleNamespace(monotonic=lambda: 1e6 if len(causes) > 1 else 0.0))
    hub.faults = lambda *asked: fault if asks(slow_request, asked) else None
    reason = (
        f"Failed to download the model {REPO}: .*; let this machine reach {hub.url()}; try again, or copy the model"
    )
    with fails("hub", reason):
        find(hub, tmp_path, report=causes.append)
    assert causes[0].startswith(f"{urlsplit(hub.url()).netloc}: TimeoutError: ") and causes[0].endswith(", try 1")


def test_a_slow_transfer_resumes_on_another_connection_with_the_received_bytes(hub, tmp_path, files, monkeypatch):
    monkeypatch.setattr(download, "ANSWER_S", 1.0)
    monkeypatch.setattr(download, "PIECE_BYTES", 4096)
    hub.faults = once(("slow", 60))

    def report(_cause):  # the second try may be slow, as on a busy machine
        monkeypatch.setattr(download, "ANSWER_S", 60.0)

    assert files_of(find(hub, tmp_path, report=report).folder) == files
    assert [headers.get("range") for server, _, _, headers in hub.requests if server == "cdn"] == [None, "bytes=4096-"]
