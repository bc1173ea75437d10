"""Publishes a run as a dataset of the Hugging Face Hub: all its files under their names, and a card."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from ..format.errors import MissingPackage
from ..format.files import File
from ..run.run import Run

_PIECE_BYTES = 8 << 20
# A commit holds this much. An interrupted export goes on after its last commit.
_COMMIT_BYTES, _COMMIT_FILES = 2 << 30, 100
_CARD = "README.md"


@dataclass(frozen=True)
class HubExport:
    """The dataset, and the files that this call has uploaded: those that the dataset lacked."""

    repo: str
    url: str
    private: bool
    digest: str
    files: int
    size_bytes: int
    uploaded: int


def to_hub(
    run: Run,
    repo: str,
    *,
    private: bool = True,
    token: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> HubExport:
    """Uploads every file of the run to a dataset of the hub, which it creates if needed.

    The manifest and the card come last, so a dataset with a manifest is complete. If a call was interrupted, call it
    again: files that the dataset has stay.

    Args:
        run: an open run.
        repo: the dataset, such as "me/my-run".
        private: whether a dataset that is created is private; one that exists keeps its visibility.
        token: of an account that may write there; None for that of `HF_TOKEN` or `hf auth login`.
        progress: called with the number of bytes that the dataset has, and of all.

    Raises:
        ValueError: the run is not complete.
        OSError: the hub refuses the upload, or the connection broke.
        MissingPackage: huggingface_hub is not installed.

    >>> to_hub(run, "me/my-run").url  # doctest: +SKIP
    'https://huggingface.co/datasets/me/my-run'
    """
    try:
        return _publish(run, repo, private, token, progress)
    except (OSError, ValueError, ImportError):
        raise
    except Exception as error:  # of an upload the client raises RuntimeError, and of a connection errors of its own
        why = " ".join(": ".join(dict.fromkeys(str(each) for each in (error, error.__cause__) if each)).split())
        raise OSError(f"the upload of {run.url} was interrupted: {why}; call it again, and it goes on") from error


def _publish(run: Run, repo: str, private: bool, token: str | None, progress: Callable[[int, int], None]) -> HubExport:
    api, operation = _import_hub(token)
    if run.problems:
        raise ValueError(f"{run.url} is not complete, and a dataset of it would not be: {'; '.join(run.problems)}")
    digest = ((run.manifest or {}).get("result") or {}).get("digest")
    if not isinstance(digest, str):
        raise ValueError(f"the manifest of {run.url} states no digest, by which a copy is verified")
    url = api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
    repo = url.repo_id  # with the namespace of the token, if the call named none
    before = _content(api, repo)
    # A copy that came from a hub has its card, and a folder of the download.
    files = {name: file for name, file in run.files.items() if name != _CARD and not name.startswith(".")}
    card = _card(run, repo, digest).encode()
    total, done = sum(file.size for file in files.values()) + len(card), 0
    for names in _commits(files):
        with tempfile.TemporaryDirectory(prefix="gleaner-hub-") as folder:
            additions = [operation(name, _download(files[name], folder, at)) for at, name in enumerate(names)]
            # The client leaves out the files that the dataset has.
            api.create_commit(repo, additions, commit_message=f"Add {names[0]}", repo_type="dataset")
        done += sum(files[name].size for name in names)
        progress(done, total)
    api.create_commit(repo, [operation(_CARD, card)], commit_message="Add the card", repo_type="dataset")
    progress(total, total)
    uploaded = len(_content(api, repo) - before)
    info = api.dataset_info(repo)
    return HubExport(repo, str(url), bool(info.private), digest, len(files) + 1, total, uploaded)


def _commits(files: dict[str, File]) -> list[list[str]]:
    """The names of the files of each commit, the manifest in the last one."""
    commits, size = [[]], 0
    for name in sorted(files, key=lambda name: (name == "manifest.json", name)):
        if commits[-1] and (size + files[name].size > _COMMIT_BYTES or len(commits[-1]) == _COMMIT_FILES):
            commits.append([])
            size = 0
        commits[-1].append(name)
        size += files[name].size
    return commits


def _download(file: File, folder: str, number: int) -> str:
    path = os.path.join(folder, str(number))
    with open(path, "wb") as target:
        for begin in range(0, file.size, _PIECE_BYTES):
            target.write(file.read(begin, min(begin + _PIECE_BYTES, file.size)))
    return path


def _content(api, repo: str) -> set[tuple[str, str]]:
    """The name and the blob of each file."""
    tree = api.list_repo_tree(repo, repo_type="dataset", recursive=True)
    return {(entry.path, entry.blob_id) for entry in tree if hasattr(entry, "blob_id")}


def _card(run: Run, repo: str, digest: str) -> str:
    spec = (run.manifest or {}).get("spec") or {}
    facts = {
        "model": spec.get("model"),
        "revision": (run.model or {}).get("revision"),
        "layers": ", ".join(map(str, run.layers)),
        "sites": ", ".join(f"{site} [{run.widths[site]}] as {run.dtypes[site]}" for site in run.sites),
        "samples": f"{run.num_samples:,}",
        "tokens": f"{run.num_tokens:,}",
        "rows of each layer and site": f"{run.num_rows:,}",
        "digest": digest,
    }
    what = f"run.batches({run.layers[0]}, {json.dumps(run.sites[0])})" if run.sites else "run.first.moments"
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in facts.items() if value is not None)
    return f"""---
pretty_name: {json.dumps(repo.rpartition("/")[2])}
tags: [activations, interpretability, gleaner]
viewer: false
---

# Activations of {_cell(spec.get("model"))}

| | |
|---|---|
{rows}

```python
import gleaner_reader
import huggingface_hub

run = gleaner_reader.open(huggingface_hub.snapshot_download({json.dumps(repo)}, repo_type="dataset"))
for each in {what}:
    ...
```

`gleaner-reader verify FOLDER --digest {digest}` shows that a copy has these bytes.
FOLDER has files rather than links: `hf download {repo} --repo-type dataset --local-dir FOLDER`.
`manifest.json` has the settings of the run, and `rejects.jsonl` the lines of a stream that were left out.
"""


def _cell(value: object) -> str:
    """A value as one line of text in a table of Markdown."""
    text = "".join(char if char.isprintable() and char not in "|<>`[]" else " " for char in str(value))
    return " ".join(text.split())[:200]


def _import_hub(token: str | None):
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise MissingPackage("export to the hub", "huggingface_hub") from None
    return HfApi(token=token), CommitOperationAdd
