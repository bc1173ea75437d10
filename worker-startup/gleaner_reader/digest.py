"""The digest of a run: one SHA-256 that stands for every byte of its shards."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

Entries = Iterable[tuple[str, str]]  # (SHA-256, name)


def digest_of(entries: Entries) -> str:
    """Hashes the digest before each entry, and the line that `sha256sum` prints for the entry."""
    digest = ""
    for sha256, name in entries:
        digest = hashlib.sha256(f"{digest}{sha256}  {name}\n".encode()).hexdigest()
    return digest


def run_digest(streams: Mapping[int, Sequence[tuple[str, str]]]) -> str:
    """streams: stream -> its shards by number. The streams count in the order of their ids, which are texts."""
    ids = sorted(streams, key=lambda stream: f"{stream:03d}")
    return digest_of((digest_of(streams[stream]), f"tpu_{stream}") for stream in ids)
