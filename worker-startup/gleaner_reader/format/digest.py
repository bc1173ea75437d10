"""The digest of a run: one SHA-256 for every byte of its shards, metadata.json, model.json and manifest.json."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

Entries = Iterable[tuple[str, str]]  # (SHA-256, name)


def digest_of(entries: Entries) -> str:
    """Hashes the digest before each entry, and the line that `sha256sum` prints for the entry."""
    digest = ""
    for sha256, name in entries:
        digest = hashlib.sha256(f"{digest}{sha256}  {name}\n".encode()).hexdigest()
    return digest


def run_digest(streams: Mapping[int, Sequence[tuple[str, str]]], files: Entries) -> str:
    """streams: stream -> its shards by number, then its metadata.json. The streams count in the order of their ids,
    which are texts. files: model.json, if the run has it, and manifest.json by `manifest_hash`."""
    ids = sorted(streams, key=lambda stream: f"{stream:03d}")
    return digest_of([*((digest_of(streams[stream]), f"tpu_{stream}") for stream in ids), *files])
