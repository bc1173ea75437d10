"""Prepares a job before its process starts: its code, its Python and its folders."""

import hashlib
import importlib.metadata
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..code_identity import locked_digest, worker_bundle
from ..jobs.mounts import RAMFS_PARENT, is_inside
from ..jobs.prepared_code import PreparedCode, SourceFailed
from ..jobs.user import JobUser, NotIsolated
from ..storage.objects import Bucket
from .bundle import unpack_bundle
from .commands import Commands, stopped
from .environment import Environments, environment_digest
from .git import check_out
from .private import Repositories
from .sealed import trim

_CHECK_EVERY_S = 0.1


class Preparation:
    """Prepares jobs on this host. home: the agent's folder."""

    def __init__(self, home: str, bucket: Bucket, find_user: Callable[[], JobUser], repositories: Repositories):
        self._home, self._bucket, self._find_user, self._repositories = home, bucket, find_user, repositories
        self._jobs = os.path.join(os.path.realpath(home), "jobs")
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}  # one for each repository, bundle and environment
        self._in_use: list[weakref.ref[PreparedCode]] = []

    def prepare(self, order: dict, version: int = 0, stop: threading.Event | None = None) -> PreparedCode:
        """Prepares the code and the environment of a job. Raises SourceFailed.

        order: `source` and `environment` as worker-api gives them. version: of the pool's source. stop: ends the
        preparation. Files of an earlier version stay, so its jobs can continue. The folders of its result stay until
        the last reference to it is gone. Calls on other threads wait only for a source or environment that they share.
        """
        source, environment = order.get("source"), order.get("environment") or {}
        os.makedirs(self._jobs, mode=0o755, exist_ok=True)
        stop = stop or threading.Event()
        try:
            prepared = self._prepare(source, environment, version, stop)
        except NotIsolated as error:
            raise SourceFailed("isolation", str(error)) from error
        self._clean_up(prepared)
        return prepared

    def _prepare(self, source: dict | None, wanted: dict, version: int, stop: threading.Event) -> PreparedCode:
        folder, commit = None, None
        if source is not None and "bundle" in source:
            with self._alone(source["bundle"], stop):
                folder = unpack_bundle(source["bundle"], self._jobs, self._bucket)
        elif source is not None:
            with self._alone(source["repo"], stop):
                folder, commit = check_out(source, self._jobs, Commands(self._find_user(), stop), self._repositories)
        digest = environment_digest(wanted, version)
        environments = Environments(self._jobs, Commands(self._find_user(), stop))
        with self._alone(digest, stop):
            python = environments.prepare(wanted, digest)
        variables, visible = {}, []
        if config := wanted.get("config_file"):
            visible.append(self._write_config(config))
            variables["JOB_CONFIG"] = visible[0]
        if ramfs_dir := wanted.get("ramfs_dir"):
            _check_ramfs(ramfs_dir, is_isolated=environments.is_isolated)
            variables["RAMFS_DIR"] = ramfs_dir
        if digest == locked_digest():
            jax_version = importlib.metadata.version("jax")
        else:
            jax_version = environments.jax_version(python, os.path.dirname(os.path.dirname(python)))
        ran = {
            "bundle": source.get("bundle") if source else None,
            "worker_bundle": worker_bundle(),
            "repo": source.get("repo") if source else None,
            "commit": commit,
            "jax_version": jax_version,
            "environment": digest,
        }
        return PreparedCode(python, folder, ran, variables, tuple(visible), ramfs_dir)

    @contextmanager
    def _alone(self, key: str, stop: threading.Event) -> Iterator[None]:
        """Holds the lock of `key`, so that one thread makes an environment and the next thread finds it complete.

        Raises SourceFailed when `stop` is set.
        """
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        while not lock.acquire(timeout=_CHECK_EVERY_S):
            if stop.is_set():
                raise stopped()
        try:
            if stop.is_set():
                raise stopped()
            yield
        finally:
            lock.release()

    def _clean_up(self, prepared: PreparedCode) -> None:
        """Removes the folders that were used longest ago, except the folders of a PreparedCode in use."""
        with self._lock:
            self._in_use = [ref for ref in self._in_use if ref() is not None] + [weakref.ref(prepared)]
            held = set()
            for given in filter(None, (ref() for ref in self._in_use)):
                held |= {given.source_folder, os.path.dirname(os.path.dirname(given.python))}
            for name in ("bundles", "trees", "environments"):
                trim(os.path.join(self._jobs, name), held)

    def _write_config(self, config: dict) -> str:
        """Writes the config file where the job user can read it, and returns its path."""
        data = config["text"].encode("utf-8", "replace")
        folder = os.path.join(self._jobs, "configs", hashlib.sha256(data).hexdigest())
        os.makedirs(folder, mode=0o755, exist_ok=True)
        path = os.path.join(folder, config["name"])
        if not os.path.exists(path):
            unfinished = os.path.join(folder, f".{uuid.uuid4().hex}")
            with open(unfinished, "wb") as file:
                file.write(data)
            os.chmod(unfinished, 0o644)
            os.replace(unfinished, path)
        return path


def _check_ramfs(path: str, is_isolated: bool) -> None:
    """Raises SourceFailed for a folder in memory that an attempt cannot have."""
    if not is_inside(path, RAMFS_PARENT) or os.path.normpath(path) != path or path == RAMFS_PARENT:
        raise SourceFailed(
            "setup", f"Failed to mount ramfs_dir {path}: name a folder below {RAMFS_PARENT}, such as /mnt/ramfs"
        )
    if not is_isolated:
        raise SourceFailed(
            "setup", f"Failed to mount ramfs_dir {path}: the agent runs without root; start the agent as root"
        )
