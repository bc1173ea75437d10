"""Redirects of a hostile hub: the token stays with the hub, and each download ends with the model or one sentence."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build import fails
from fake_hub import FakeHub
from gleaner_worker.failures import Failure
from gleaner_worker.model.files import download
from hub_models import REPO, TOKEN, files_of, find

pytestmark = pytest.mark.slow

# {hub}, {cdn}: their hosts and ports. {alias}: another name of the hub's host.
_TARGETS = [
    "{path}",
    "http://{hub}{path}",
    "//{hub}{path}",
    "http://{cdn}{path}",
    "http://{alias}{path}",
    "http://user:word@{hub}{path}",
    "http://{hub}.{path}",
    "https://{hub}{path}",
    "https://host.example{path}",
    "http://169.254.169.254{path}",
    "http://host.example{path}",
    "http://[::1",
    "http://{hub}:port{path}",
    "ftp://{hub}{path}",
    "file:///etc/passwd",
    "data:,x",
    "",
    "\x80\xff",
    "{path}" + "x" * 70_000,
]
_hop = st.tuples(st.sampled_from([301, 302, 303, 307, 308]), st.sampled_from(_TARGETS))
_more = st.sampled_from([{}, {"X-Long": "x" * 200_000}, {f"X-{number}": "x" for number in range(200)}])


class RedirectingHub(FakeHub):
    """Redirects requests whose path has `part` by each hop in turn, and the last for ever where it `loops`."""

    def __init__(self):
        super().__init__()
        self.plan = "", [], False, {}

    def _answer(self, server, method, path, headers):
        part, hops, loops, more = self.plan
        path, _, taken = path.partition("/hop")
        number = int(taken or 0)
        if part not in path or (number >= len(hops) and not loops):
            return super()._answer(server, method, path, headers)
        status, target = hops[min(number, len(hops) - 1)]
        hosts = {name: self.url(name).removeprefix("http://") for name in ("hub", "cdn")}
        alias = hosts["hub"].replace("127.0.0.1", "localhost")
        where = target.format(path=f"{path}/hop{number + 1}", alias=alias, **hosts)
        return status, more | {"Location": where}, b""


@pytest.fixture(scope="module")
def hostile():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GIVE_UP_AFTER_S", "FIRST_GIVE_UP_AFTER_S"):
            patch.setattr(download, name, 0.2)
        patch.setattr(download, "FIRST_WAIT_S", 0.02)
        hub = RedirectingHub()
        yield hub
        hub.close()


@pytest.mark.parametrize(
    ("endpoint", "origin", "is_followed"),
    [
        ("https://hub.example", "https://store.example", True),
        ("https://hub.example", "http://hub.example", False),
        ("https://hub.example", "http://127.0.0.1", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", True),
        ("http://127.0.0.1:1", "http://169.254.169.254", False),
    ],
)
def test_a_redirect_is_followed_with_encryption_or_within_this_machine(endpoint, origin, is_followed):
    assert download.may_ask(origin, endpoint) is is_followed


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/here", "it redirects 10 times"),
        ("http://169.254.169.254/", "it redirects to http://169.254.169.254, which is no https:// address"),
    ],
)
def test_a_redirect_that_is_not_followed_is_named(hub, tmp_path, target, says):
    hub._answer = lambda *_: (302, {"Location": target}, b"")
    with fails("hub", f"does not answer as a hub does: {says}; try again"):
        find(hub, tmp_path)


def test_a_list_of_files_has_a_limit(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MAX_LIST_BYTES", 1 << 20)
    hub._answer = lambda *_: (200, {}, bytes(2 << 20))
    with fails("hub", "an answer has more than 1048576 bytes"):
        find(hub, tmp_path)


def test_a_file_of_more_bytes_than_the_hub_states_is_ended(hub, tmp_path, files, monkeypatch):
    monkeypatch.setattr(download, "GIVE_UP_AFTER_S", 0.2)
    weights, answer = files["model.safetensors"], hub._file_of_cdn
    hub._file_of_cdn = lambda path, headers: (*answer(path, headers)[:2], weights + bytes(8 << 20))
    with fails("hub"):
        find(hub, tmp_path)
    assert all(path.stat().st_size < 1 << 20 for path in tmp_path.rglob("*.part"))


@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    part=st.sampled_from(["/api/", "config.json", "model.safetensors"]),
    hops=st.lists(_hop, min_size=1, max_size=3),
    loops=st.booleans(),
    more=_more,
)
def test_a_redirect_leads_no_token_away_and_every_download_ends(
    hostile, storage, tmp_path_factory, tiny_folder, part, hops, loops, more
):
    files = files_of(tiny_folder)
    hostile.put(REPO, files)
    hostile.tokens[REPO] = {TOKEN}
    hostile.plan, hostile.requests = (part, hops, loops, more), []
    try:
        found = find(hostile, tmp_path_factory.mktemp("home"), token=TOKEN)
        assert files_of(found.folder) == files
    except Failure as error:
        assert error.kind in ("hub", "model")
        assert "\n" not in error.reason and len(error.reason) < 1500
        assert TOKEN not in error.reason
    own = hostile.url().removeprefix("http://")
    for server, _, _, headers in hostile.requests:
        assert "authorization" not in headers or (server, headers["host"]) == ("hub", own)
    assert len(hostile.requests) < 300
