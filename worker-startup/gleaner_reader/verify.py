"""Compares every byte of a run with the checksums that its streams state. Needs the files of the run alone."""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .checksums import as_text, extend
from .errors import ShardError
from .files import File, Folder
from .limits import MAX_SMALL_OBJECT_BYTES
from .run import Run
from .shard import Shard

_PIECE_BYTES = 8 << 20
_THREADS = 4


@dataclass(frozen=True)
class Verification:
    """The outcome for a run.

    digest: the SHA-256 of the text that `sha256sum` prints for all shards, by stream and number. The same shards have
    the same digest, on any disk and in any bucket.
    """

    run: str
    shards: int
    size_bytes: int
    digest: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class _Digests:
    sha256: str
    crc32c: str


def verify(folder: Folder, progress: Callable[[int, int], None] = lambda done, total: None) -> Verification:
    """Reads every shard of a run. progress: receives the shards that are read, and all.

    Raises FileNotFoundError for a folder without shards, and ShardError for files that cannot be read.
    """
    run, files = Run(folder), {file.url: file for file in folder.files().values()}
    metadata = {name: file for name, file in folder.files().items() if name.rpartition("/")[2] == "metadata.json"}
    problems, lines, done = list(run.problems), [], 0
    with ThreadPoolExecutor(_THREADS, "verify") as pool:
        digests = pool.map(lambda shard: _digests(files[shard.url]), run.shards)
        for stream, shards in run.streams.items():
            summary = metadata.get(f"tpu_{stream}/metadata.json") or metadata.get("metadata.json")
            stated = _stated(summary, stream, problems)
            for shard in shards:
                found, name = next(digests), shard.url.replace("\\", "/").rpartition("/")[2]
                lines.append(f"{found.sha256}  tpu_{stream}/{name}\n")
                problems += [f"{shard.url} {why}" for why in _faults(run, shard, found, stated.pop(name, None))]
                done += 1
                progress(done, len(run.shards))
            problems += [f"stream {stream} lacks {name}, which its metadata.json lists" for name in stated]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Verification(run.url, len(run.shards), sum(s.size_bytes for s in run.shards), digest, tuple(problems))


def _digests(file: File) -> _Digests:
    sha256, checksum = hashlib.sha256(), 0
    for begin in range(0, file.size, _PIECE_BYTES):
        piece = file.read(begin, min(begin + _PIECE_BYTES, file.size))
        sha256.update(piece)
        checksum = extend(checksum, piece)
    return _Digests(sha256.hexdigest(), as_text(checksum))


def _stated(file: File | None, stream: int, problems: list[str]) -> dict[str, tuple[Any, Any]]:
    """{name: (size, CRC-32C)} of the shards that metadata.json of a stream lists."""
    if file is None:
        problems.append(f"stream {stream} has no metadata.json, which states the checksums of its shards")
        return {}
    try:
        if file.size > MAX_SMALL_OBJECT_BYTES:
            raise ValueError(f"it has {file.size} bytes")
        shards = json.loads(bytes(file.read(0, file.size)))["shards"]
        return {str(shard["filename"]): (shard["size_bytes"], shard["crc32c"]) for shard in shards}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problems.append(f"{file.url} is no metadata.json of a stream: {str(error)[:200]}")
        return {}


def _faults(run: Run, shard: Shard, found: _Digests, stated: tuple[Any, Any] | None) -> list[str]:
    wrong = []
    hash_of_run = (run.manifest or {}).get("spec_hash")
    if hash_of_run is not None and shard.metadata.get("spec_hash") != hash_of_run:
        wrong.append("was made with another spec than the manifest has")
    is_same = stated == (shard.size_bytes, found.crc32c)
    # metadata.json is stored before the last shard, so a TPU that was lost in between leaves other last bits there.
    if not is_same and not (shard.is_final and _holds_its_checksums(shard)):
        size, checksum = stated or ("no size", "no checksum")
        wrong.append(
            f"has {shard.size_bytes} bytes of CRC-32C {found.crc32c}; its metadata.json states {size} and {checksum}"
        )
    return wrong


def _holds_its_checksums(shard: Shard) -> bool:
    try:
        shard.index()
        for site, layer in shard.names:
            shard.rows(site, layer, 0, shard.num_rows, verify=True)
    except ShardError:
        return False
    finally:
        shard.release()
    return True
