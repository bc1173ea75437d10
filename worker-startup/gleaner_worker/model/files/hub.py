"""Models from a hub such as huggingface.co: each at one commit, complete or missing, without pickles or code."""

import logging
import os
import re
import sys
from collections.abc import Callable

from gleaner_reader.format.errors import printable

from ...failures import Failure
from ...model_files import INDEX, ONE_FILE
from .download import COMMIT, Hub, Session, is_endpoint
from .identity import choose_files
from .model_cache import kept_copy, make_room

log = logging.getLogger(__name__)

DEFAULT_ENDPOINT = "https://huggingface.co"
_SEGMENT = r"[A-Za-z0-9_](?:[\w.-]{0,94}\w)?"
_ID = re.compile(rf"(?:{_SEGMENT}/)?{_SEGMENT}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][\w./+-]{0,255}", re.ASCII)


def own_hub(report: Callable[[str | None], None] = lambda cause: None) -> Hub:
    """The hub of this machine's user: HF_ENDPOINT, and HF_TOKEN or the token of `hf auth login`."""

    def token(check: Callable[[], None]) -> str | None:
        from huggingface_hub import get_token  # an import of a second

        return get_token()

    return Hub(_own_endpoint(), token, report)


def print_wait(cause: str | None) -> None:
    """The `report` of a command: one line on stderr for each failed attempt, which cli/python/ask-worker.ts shows."""
    if cause is not None:
        print(printable(f"Waiting for {cause}"), file=sys.stderr, flush=True)


def worker_hub(endpoint: str | None, token: Callable[[Callable[[], None]], str | None]) -> Hub:
    """The hub that this VM's metadata names, with its token, if there is one."""
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
) -> tuple[str, bool, str, dict[str, str]]:
    """(folder, whether it was there before, commit, sha256 of the files that were downloaded) of the hub's `model`.

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
            f"Failed to find the model {model}: {revision!r:.300} is not a revision; set `revision` to one of the hub",
        )
    session, hashes = Session(hub, model, revision, check), {}

    def fill(folder: str) -> None:
        commit, sizes = session.listing
        if weights and INDEX in sizes and ONE_FILE not in sizes:
            hashes.update(session.fetch([INDEX], folder))
        chosen = choose_files(sizes, folder, model, weights, generates=generates)
        there = sum(entry.stat().st_size for entry in os.scandir(folder))
        make_room(folder, sum(sizes[name] or 0 for name in chosen) - there, model)
        log.info("Downloading %s at commit %s: %s", model, commit, ", ".join(chosen))
        hashes.update(session.fetch(chosen, folder))

    commit = revision if revision and COMMIT.fullmatch(revision) else session.listing[0]
    kind = ("" if weights else "--small") + ("--generation" if generates else "")
    folder, is_kept = kept_copy(home, hub_folder(hub, model, f"{commit}{kind}"), check, fill)
    return folder, is_kept, commit, hashes


def hub_folder(hub: Hub, model: str, version: str) -> str:
    """The name of a copy. `version` may contain the commit, because the files of a commit never change."""
    place = re.sub(r"[^A-Za-z0-9.]+", "-", hub.endpoint.removeprefix("https://").rstrip("/"))
    return f"{place}--{model.replace('/', '--')}--{version}"


def _own_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
