"""Models from a hub such as huggingface.co: each at one commit, complete or missing, without pickles or code."""

import functools
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from google.auth.credentials import Credentials

from ..failures import Failure
from ..secret import read_token
from .download import COMMIT, Session
from .hub_client import hub_client, is_endpoint
from .identity import INDEX, choose_files, hash_files
from .model_cache import Copy, kept_copy, make_room

log = logging.getLogger(__name__)

DEFAULT_ENDPOINT = "https://huggingface.co"
_SEGMENT = r"[A-Za-z0-9_](?:[\w.-]{0,94}\w)?"
_ID = re.compile(rf"(?:{_SEGMENT}/)?{_SEGMENT}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][\w./+-]{0,255}", re.ASCII)


@dataclass(frozen=True)
class Hub:
    """The address of a hub.

    token: returns the token for the hub when a download begins; it is never stored. Its argument is called during
    waits, and may raise. report: receives the cause of each failed attempt, and None when the hub answers again.
    received: receives the number of bytes of each piece of a file.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: Callable[[Callable[[], None]], str | None] = field(default=lambda check: None, repr=False)
    report: Callable[[str | None], None] = field(default=lambda cause: None, repr=False)
    received: Callable[[int], None] = field(default=lambda count: None, repr=False)


def own_hub(report: Callable[[str | None], None] = lambda cause: None) -> Hub:
    """The hub of this machine's user: HF_ENDPOINT, and HF_TOKEN or the token of `hf auth login`."""
    return Hub(_own_endpoint(), lambda check: hub_client().get_token(), report)


def print_wait(cause: str | None) -> None:
    """The `report` of a command: one line on stderr for each failed attempt, which cli/python/ask-worker.ts shows."""
    if cause is not None:
        print(f"Waiting for {cause}", file=sys.stderr, flush=True)


def worker_hub(endpoint: str | None, token_secret: str | None, credentials: Credentials) -> Hub:
    """The hub that this VM's metadata names, with the token of the secret that the metadata name, if any."""

    def token(check: Callable[[], None]) -> str | None:
        return read_token(token_secret, credentials, check) if token_secret else None

    return Hub(endpoint or _own_endpoint(), token)


def is_hub_id(model: str) -> bool:
    """Whether the name is `org/name` or `name`, as the hub allows them."""
    return bool(_ID.fullmatch(model)) and "--" not in model and ".." not in model and not model.endswith(".git")


def fetch_model(
    hub: Hub,
    model: str,
    revision: str | None,
    home: str,
    weights: bool,
    check: Callable[[], None],
    generates: bool = False,
) -> tuple[Copy, str, dict[str, str]]:
    """The hub's `model` on this disk, its commit, and the sha256 of the files that were compared with the hub's.

    `revision` is a branch, a tag or a commit; None is the branch main. A commit that this disk holds is used without a
    request to the hub. `check` is called during waits and between the pieces of a file, and may raise. Raises Failure
    with the remedy.
    """
    if not is_endpoint(hub.endpoint):
        raise Failure(
            "model",
            f"Failed to use the hub {hub.endpoint!r:.200}: it is not an https:// address; correct GLEANER_HF_ENDPOINT",
        )
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise Failure(
            "model",
            f"Failed to find the model {model}: {revision!r:.300} is no revision; set `revision` to one of the hub",
        )

    @functools.cache
    def listing() -> tuple[Session, str, dict[str, int | None]]:
        session = Session(hub.endpoint.rstrip("/"), model, hub.token(check), check, hub.report, hub.received)
        return session, *session.list_files(revision)

    hashes: dict[str, str] = {}

    def fill(folder: str) -> None:
        session, commit, sizes = listing()
        hashes.update(_fill(session, commit, sizes, folder, weights, generates))

    commit = revision if revision and COMMIT.fullmatch(revision) else listing()[1]
    return kept_copy(home, _key(hub, model, commit, weights, generates), check, fill), commit, hashes


def _key(hub: Hub, model: str, commit: str, weights: bool, generates: bool) -> str:
    """The name of the copy's folder, which may contain the commit because the files of a commit never change."""
    place = re.sub(r"[^A-Za-z0-9.]+", "-", hub.endpoint.removeprefix("https://").rstrip("/"))
    kind = ("" if weights else "--small") + ("--generation" if generates else "")
    return f"{place}--{model.replace('/', '--')}--{commit}{kind}"


def _fill(
    session: Session, commit: str, sizes: dict[str, int | None], folder: str, weights: bool, generates: bool
) -> dict[str, str]:
    if weights and INDEX in sizes:
        session.fetch_all([INDEX], commit, folder)
    chosen = choose_files(sizes, folder, session.model, weights, generates=generates)
    make_room(folder, sum(sizes[name] or 0 for name in chosen) - _bytes_in(folder), session.model)
    log.info("Downloading %s at commit %s: %s", session.model, commit, ", ".join(chosen))
    for attempt in (1, 2):
        stated = session.fetch_all(chosen, commit, folder)
        hashes = hash_files(folder, stated, session.model)
        wrong = [name for name in stated if hashes[name] != stated[name]]
        if not wrong:
            return hashes
        log.warning("%s of %s arrived damaged (attempt %d)", ", ".join(wrong), session.model, attempt)
        for name in wrong:
            os.remove(os.path.join(folder, name))
    raise Failure(
        "hub",
        f"Failed to download {wrong[0]} of {session.model}: its sha256 is {hashes[wrong[0]]}, "
        f"and the hub states {stated[wrong[0]]}; check the network, or copy the model to gs://…",
    )


def _own_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT


def _bytes_in(folder: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder))
