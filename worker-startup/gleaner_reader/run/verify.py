"""Compares every byte of a run with the digests that its streams and its manifest state.

Needs the files of the run alone, so it shows that they agree with each other. Whoever made all of them could state any
digest: compare the digest with one from elsewhere.
"""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..format.checksums import as_text, extend
from ..format.digest import run_digest
from ..format.errors import ShardError
from ..format.files import File, Folder
from ..format.limits import MAX_SMALL_OBJECT_BYTES
from ..format.safetensors_header import LAYOUT
from ..format.spec_hash import hash_of_manifest, hash_of_spec
from .run import Run
from .shard import Shard

_PIECE_BYTES = 8 << 20
_THREADS = 4


@dataclass(frozen=True)
class Verification:
    """The outcome for a run.

    digest: of the run. The same files have the same digest, on any disk and in any bucket. uncovered: the files that it
    does not cover.
    """

    run: str
    shards: int
    size_bytes: int
    digest: str
    uncovered: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class _Facts:
    """Facts of a shard: of its bytes, or as metadata.json states them."""

    size_bytes: Any
    crc32c: Any
    sha256: Any
    layout: dict = field(default_factory=dict, compare=False)  # where its tensors are, if metadata.json states that


def verify(folder: Folder, progress: Callable[[int, int], None] = lambda done, total: None) -> Verification:
    """Compares every byte of a run with the checksums that its files state.

    Args:
        folder: the run, as `open_folder` opens it.
        progress: called with the number of shards that are read, and of all.

    Raises:
        FileNotFoundError: the folder has no shards.
        ShardError: two shards have the same number, the manifest cannot be read, or an entry is no file but, for
            example, a symbolic link.

    >>> from gleaner_reader.format.files import open_folder
    >>> from gleaner_reader.run.verify import verify
    >>> found = verify(open_folder("gs://my-bucket/activations/my-run"))
    >>> found.shards, found.problems
    (6, ())
    """
    if others := folder.others():
        raise ShardError(
            f"{', '.join(others[:5])}{f' and {len(others) - 5:,} more' if len(others) > 5 else ''}: "
            "symbolic links and special files are not verified; copy the run with its files: cp -rL FROM TO"
        )
    run = Run(folder)
    files, covered = {file.url: file for file in run.files.values()}, {"manifest.json", "model.json"}
    problems, done = _problems_of(run), 0
    manifest = _read(run.files.get("manifest.json"))
    spec_hash = hash_of_spec(manifest) if manifest else None
    hashes: dict[int, list[tuple[str, str]]] = {}
    with ThreadPoolExecutor(_THREADS, "verify") as pool:
        facts = pool.map(lambda shard: _facts(files[shard.url]), run.shards)
        for stream, shards in run.streams.items():
            name = run.summary_name(stream)
            summary = _read(run.files.get(name))
            stated = _stated(summary, stream, problems)
            covered.add(name)
            hashes[stream] = []
            for shard in shards:
                found, name = next(facts), shard.name
                hashes[stream].append((found.sha256, name))
                problems += [f"{shard.url} {why}" for why in _faults(spec_hash, shard, found, stated.pop(name, None))]
                done += 1
                progress(done, len(run.shards))
            problems += [f"stream {stream} lacks {name}, which its metadata.json lists" for name in stated]
            hashes[stream].append((_sha256(summary), "metadata.json"))
    model = _read(run.files.get("model.json"))
    others = [(_sha256(model), "model.json")] if model is not None else []
    digest = run_digest(hashes, [*others, (hash_of_manifest(manifest or b"{}"), "manifest.json")])
    problems += _faults_of_manifest(run, spec_hash, digest)
    size_bytes = sum(shard.size_bytes for shard in run.shards)
    shards = {shard.url for shard in run.shards}
    uncovered = tuple(name for name, file in run.files.items() if name not in covered and file.url not in shards)
    return Verification(run.url, len(run.shards), size_bytes, digest, uncovered, tuple(dict.fromkeys(problems)))


def _problems_of(run: Run) -> list[str]:
    try:
        return list(run.problems)
    except ShardError as error:
        return [str(error)]


def _read(file: File | None) -> bytes | None:
    """The bytes of a small file; None without one. Raises ShardError."""
    if file is not None and file.size > MAX_SMALL_OBJECT_BYTES:
        raise ShardError(f"{file.url} cannot be read: it has {file.size} bytes")
    return bytes(file.read(0, file.size)) if file else None


def _sha256(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _faults_of_manifest(run: Run, spec_hash: str | None, digest: str) -> list[str]:
    wrong, manifest = [], run.manifest or {}
    if spec_hash != manifest.get("spec_hash"):
        wrong.append(f"the spec in its manifest has the hash {spec_hash}, and it states {manifest.get('spec_hash')}")
    result = manifest.get("result")
    # A missing or further shard is a problem already.
    if isinstance(result, dict) and result.get("shards") == len(run.shards) and result.get("digest") != digest:
        wrong.append(f"its digest is {digest}, and its manifest states {result.get('digest')}")
    return wrong


def _facts(file: File) -> _Facts:
    sha256, checksum = hashlib.sha256(), 0
    for begin in range(0, file.size, _PIECE_BYTES):
        piece = file.read(begin, min(begin + _PIECE_BYTES, file.size))
        sha256.update(piece)
        checksum = extend(checksum, piece)
    return _Facts(file.size, as_text(checksum), sha256.hexdigest())


def _stated(summary: bytes | None, stream: int, problems: list[str]) -> dict[str, _Facts]:
    """The shards that metadata.json of a stream lists, by name."""
    if summary is None:
        problems.append(f"stream {stream} has no metadata.json, which states the checksums of its shards")
        return {}
    try:
        stated = {}
        for shard in json.loads(summary)["shards"]:
            layout = {key: shard[key] for key in LAYOUT if key in shard}
            stated[str(shard["filename"])] = _Facts(shard["size_bytes"], shard["crc32c"], shard["sha256"], layout)
        return stated
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems.append(f"metadata.json of stream {stream} cannot be read: {str(error)[:200]}")
        return {}


def _faults(spec_hash: str | None, shard: Shard, found: _Facts, stated: _Facts | None) -> list[str]:
    wrong = []
    try:
        if spec_hash is not None and shard.metadata.get("spec_hash") != spec_hash:
            wrong.append("was made with another spec than the manifest has")
        if stated and stated == found and stated.layout not in ({}, shard.layout):
            wrong.append("has its tensors elsewhere than its metadata.json states")
        is_final = shard.is_final
    except ShardError:  # its bytes differ from the stated ones
        is_final = False
    # metadata.json is stored before the last shard, so a TPU that was lost in between leaves other last bits there.
    if stated != found and not (is_final and _holds_its_checksums(shard)):
        listed = f"states {_text(stated)}" if stated else "does not list it"
        wrong.append(f"has {_text(found)}; its metadata.json {listed}")
    return wrong


def _text(facts: _Facts) -> str:
    return f"{facts.size_bytes} bytes of CRC-32C {facts.crc32c} and SHA-256 {facts.sha256}"


def _holds_its_checksums(shard: Shard) -> bool:
    try:
        shard.index()
        for site, layer in shard.names:
            shard.rows(site, layer, 0, shard.num_rows, verify=True)
        for name in (f"{site}.{layer}.{kind}" for site, layer in shard.moments for kind in ("sum", "squares")):
            shard.tensor(name, verify=True)
    except ShardError:
        return False
    finally:
        shard.release()
    return True
