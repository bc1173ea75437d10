"""One model for a whole run: the first worker records the digests of the model's files, and all workers use these."""

import json
import logging
import shutil

from ...failures import Failure
from ...model_files import is_small_file
from ...names import model_name
from ...spec.spec import Spec
from ...storage.objects import Bucket, Contradicts
from ...storage.upload_content import BytesContent
from .download import COMMIT
from .hub import Hub
from .identity import Identity, ModelFiles
from .model_source import find_spec_files

log = logging.getLogger(__name__)

SCHEMA = "gleaner/1"
_MAX_BYTES = 1 << 20


def find_run_model(
    spec: Spec, run: str, home: str, bucket: Bucket, hub: Hub | None = None, weights: bool = True
) -> ModelFiles:
    """`find_spec_files` for a run of `bucket`: exactly the files that the other workers of the run use.

    With `weights`, the first worker writes the lock. Raises Failure("model") naming each file that differs.
    """
    lock = read_model_lock(bucket, run)
    while True:
        is_first = lock is None
        local = find_spec_files(spec, home, bucket, lock=lock, hub=hub, weights=weights)
        if is_first and weights and not (lock := write_model_lock(bucket, run, local)):
            continue  # it was deleted just now
        if lock is None or not (differing := differences(lock, local, spec)):
            return local
        if is_first:
            log.warning("Another worker of run %s recorded the files of %s first; using those", run, spec.model)
        elif stale := local.stale_copies(lock):
            log.warning("Copies on this disk differ from the files of run %s: %s; copying again", run, ", ".join(stale))
            for folder in stale:
                shutil.rmtree(folder, ignore_errors=True)
        else:
            raise Failure(
                "model",
                f"Failed to resume {run}, which began with a different model "
                f"(gs://{bucket.name}/{model_name(run)}): {'; '.join(differing)}; "
                "restore that model, or start a new run",
            )


def read_model_lock(bucket: Bucket, run: str) -> Identity | None:
    """The lock of the run; None before the first worker has loaded its model."""
    name = model_name(run)
    info = bucket.head(name)
    if info is None:
        return None
    try:
        if info.size_bytes > _MAX_BYTES:
            raise ValueError(f"it has {info.size_bytes} bytes")
        return _parse(bucket.read(name) or b"")
    except (ValueError, RecursionError) as error:
        raise Failure(
            "model",
            f"Failed to read gs://{bucket.name}/{name}: {str(error)[:300]}; "
            "delete it, and the next worker writes it again",
        ) from error


def write_model_lock(bucket: Bucket, run: str, local: ModelFiles) -> Identity | None:
    """Writes the lock of the run unless it exists; returns the lock that exists then."""
    record = {"schema": SCHEMA} | local.facts
    data = json.dumps(record, indent=2, sort_keys=True).encode() + b"\n"
    try:
        bucket.create(model_name(run), BytesContent(data), {"schema": SCHEMA, "run": run}, "application/json")
    except Contradicts:  # the first lock counts
        return read_model_lock(bucket, run)
    return local


def differences(lock: Identity, local: ModelFiles, spec: Spec) -> list[str]:
    """The differences between the run's model and this machine's, as phrases; without weights, of the small files."""
    if lock.name != local.name:
        return [f"it was {lock.name}, now it is {local.name}"]
    asked = spec.revision
    if asked and COMMIT.fullmatch(asked) and asked != lock.revision:
        return [f"it was commit {lock.revision}, `revision` asks for {asked}"]
    names = {name for name in lock.files if local.weights_sha256 or is_small_file(name)} | set(local.files)
    was_and_now = [(name, lock.files.get(name), local.files.get(name)) for name in sorted(names)]
    problems = [f"{name} {_describe(was, now)}" for name, was, now in was_and_now if was != now]
    if local.revision != lock.revision and not problems:
        return [f"it was commit {lock.revision}, now it is {local.revision}"]
    return problems


def _describe(was: str | None, now: str | None) -> str:
    if was and now:
        return f"has {_shown(now)}, and had {_shown(was)}"
    return "is gone" if was else "is new"


def _shown(digest: str) -> str:
    return digest if ":" in digest else f"sha256 {digest[:12]}…"


def _parse(data: bytes) -> Identity:
    raw = json.loads(data)
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise ValueError(f"it is not of schema {SCHEMA}")
    name, revision, files = raw.get("name"), raw.get("revision"), raw.get("files")
    reductions = raw.get("reductions", {})
    if not isinstance(name, str):
        raise ValueError(f"name is {name!r:.100}")
    if not _is_commit(revision):
        raise ValueError(f"revision is {revision!r:.100}, which is not a commit")
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        raise ValueError(f"files is {files!r:.100}")
    if not isinstance(reductions, dict) or not all(map(_is_commit, reductions.values())):
        raise ValueError(f"reductions is {reductions!r:.100}")
    lock = Identity(name, revision, files, reductions)
    if lock.fingerprint is None or raw.get("fingerprint") != lock.fingerprint:
        raise ValueError(f"fingerprint is {raw.get('fingerprint')!r:.100}, and its files have {lock.fingerprint}")
    return lock


def _is_commit(value: object) -> bool:
    return value is None or (isinstance(value, str) and COMMIT.fullmatch(value) is not None)
