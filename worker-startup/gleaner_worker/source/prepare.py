"""What a job needs before its process starts: its code, its Python and its folders."""

import hashlib
import importlib.metadata
import os
import threading
from collections.abc import Callable

from ..code_identity import locked_digest, worker_bundle
from ..jobs.prepared import Prepared, SourceFailed
from ..jobs.user import JobUser, NotIsolated
from ..objects import Bucket
from .bundle import unpack_bundle
from .commands import Commands
from .environment import Environments
from .git import check_out
from .ramfs import mount_ramfs


class Preparation:
    """Prepares one job at a time on this host. home: the agent's folder."""

    def __init__(self, home: str, bucket: Bucket, find_user: Callable[[], JobUser]):
        self._home, self._bucket, self._find_user = home, bucket, find_user
        self._jobs = os.path.join(os.path.realpath(home), "jobs")
        self._lock = threading.Lock()

    def prepare(
        self,
        order: dict,
        version: int = 0,
        stop: threading.Event | None = None,
        write: Callable[[bytes], None] = lambda _: None,
    ) -> Prepared:
        """order: `source` and `environment` as worker-api gives them. version: of the pool's source.

        Raises SourceFailed. Files of an earlier version stay, so its jobs go on.
        """
        source, environment = order.get("source"), order.get("environment") or {}
        with self._lock:
            os.makedirs(self._jobs, mode=0o755, exist_ok=True)
            try:
                return self._prepare(
                    source, environment, version, Commands(self._user(), stop or threading.Event(), write)
                )
            except NotIsolated as error:
                raise SourceFailed("isolation", str(error)) from error

    def _user(self) -> JobUser:
        return self._find_user()

    def _prepare(self, source: dict | None, environment: dict, version: int, commands: Commands) -> Prepared:
        folder, commit = None, None
        if source is not None and "bundle" in source:
            folder = unpack_bundle(source["bundle"], self._jobs, self._bucket)
        elif source is not None:
            folder, commit = check_out(source, self._jobs, commands)
        environments = Environments(self._jobs, commands)
        python, digest = environments.prepare(environment, version)
        variables, visible = {}, []
        if config := environment.get("config_file"):
            visible.append(self._write_config(config))
            variables["JOB_CONFIG"] = visible[0]
        if ramfs_dir := environment.get("ramfs_dir"):
            mount_ramfs(ramfs_dir, self._home)
            variables["RAMFS_DIR"] = ramfs_dir
        ran = {
            "bundle": source.get("bundle") if source else None,
            "worker_bundle": worker_bundle(),
            "repo": source.get("repo") if source else None,
            "commit": commit,
            "jax_version": self._jax_version(environments, python, digest),
            "environment": digest,
        }
        return Prepared(python, folder, ran, variables, tuple(visible))

    def _write_config(self, config: dict) -> str:
        """The path of the file, which the job user reads."""
        data = config["text"].encode("utf-8", "replace")
        folder = os.path.join(self._jobs, "configs", hashlib.sha256(data).hexdigest())
        os.makedirs(folder, mode=0o755, exist_ok=True)
        path = os.path.join(folder, config["name"])
        if not os.path.exists(path):
            with open(f"{path}.new", "wb") as file:
                file.write(data)
            os.chmod(f"{path}.new", 0o644)
            os.replace(f"{path}.new", path)
        return path

    def _jax_version(self, environments: Environments, python: str, digest: str) -> str | None:
        if digest == locked_digest():
            return importlib.metadata.version("jax")
        return environments.jax_version(python, os.path.dirname(os.path.dirname(python)))
