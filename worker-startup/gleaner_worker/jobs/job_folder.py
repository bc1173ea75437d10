"""The folder of one attempt on this host, and the environment of its process."""

import glob
import os
import subprocess
import sys
from collections.abc import Mapping

from .prepared import Prepared
from .user import JobUser, make_folder

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RUN_JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_job.py")
# Settings of this machine that say nothing about the agent.
_PASSED = ("LANG", "LC_ALL", "TZ", "JAX_PLATFORMS")


class JobFolder:
    """Belongs to the agent until all its files exist, so that no process of the user replaces one before."""

    def __init__(self, home: str, order: dict, epoch: int, user: JobUser, machine: Mapping[str, str]):
        self.order, self.user, self._machine = order, user, machine
        self.path = os.path.realpath(os.path.join(home, "jobs", f"{order['id']}-e{epoch}"))
        self.remove()
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        os.mkdir(self.path, 0o700)
        self.result, self.report = os.path.join(self.path, "result"), os.path.join(self.path, "report")
        self.tmp, self.artifacts, self._home = (self._make(name) for name in ("tmp", "artifacts", "home"))
        self._code = self._write("job.py", order["code"]) if order["code"] is not None else None
        config = (order.get("environment") or {}).get("config_file")
        self._config = config and self._write(os.path.join(self._make("config"), config["name"]), config["text"])
        self._give(self.path)
        self._cache = _shared_cache(home, user)

    def argv(self, prepared: Prepared) -> list[str]:
        if self._code is not None:
            # Without -P the folder of the script would come before the standard library.
            return [prepared.python, "-P", _RUN_JOB, self._code, self.report]
        command = self.order["command"]
        return ["bash", "-c", command] if isinstance(command, str) else list(command)

    def environment(self, prepared: Prepared) -> dict[str, str]:
        number = self.order.get("challenge_number")
        return {
            **{name: os.environ[name] for name in _PASSED if name in os.environ},
            **self._machine,
            "PATH": f"{os.path.dirname(prepared.python)}:{_SYSTEM_PATH}",
            "HOME": self._home,
            "TMPDIR": self.tmp,
            "JOB_ID": self.order["id"],
            "JOB_RESULT": self.result,
            "JOB_ARTIFACTS": self.artifacts,
            "JOB_SOURCE": prepared.source_folder or "",
            "JOB_CONFIG": self._config or "",
            "CHALLENGE_NUMBER": "" if number is None else str(number),
            "TPU_LIBRARY_PATH": _find_libtpu(prepared.python),
            "JAX_COMPILATION_CACHE_DIR": os.path.join(self._cache, "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PYTHONPATH": prepared.source_folder or "",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPYCACHEPREFIX": os.path.join(self._cache, "bytecode"),
            **prepared.environment,
        }

    def visible(self, prepared: Prepared) -> list[str]:
        """Paths that the process reads."""
        python = os.path.dirname(os.path.dirname(prepared.python))
        real_python = os.path.dirname(os.path.dirname(os.path.realpath(prepared.python)))
        source = [prepared.source_folder] if prepared.source_folder else []
        # A Python of the system lies in /usr, which everyone reads.
        pythons = [path for path in (python, real_python) if path not in ("/", "/usr", "/usr/local")]
        return [self.path, self._cache, *pythons, *source, *prepared.visible]

    def clear_ends(self) -> None:
        """Forgets the result of a process that was ended for a new source."""
        _remove(self.result, self.report)

    def remove(self) -> None:
        _remove(self.path)

    def _make(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.mkdir(path, 0o700)
        self._give(path)
        return path

    def _write(self, name: str, text: str) -> str:
        path = os.path.join(self.path, name)
        with open(path, "x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        self._give(path)
        return path

    def _give(self, path: str) -> None:
        if self.user.is_isolated:
            os.chown(path, self.user.uid, self.user.gid, follow_symlinks=False)


def _remove(*paths: str) -> None:
    """`rm` follows no link, and a folder of any depth is no problem for it."""
    subprocess.run(["rm", "-rf", "--", *paths], stdin=subprocess.DEVNULL, check=False)


def _shared_cache(home: str, user: JobUser) -> str:
    """What jobs of this host have compiled, for the next jobs. The caches of the agent are never theirs."""
    path = os.path.realpath(os.path.join(home, "jobs", f"cache-{user.uid}"))
    return path if os.path.isdir(path) else make_folder(path, user)


def _find_libtpu(python: str) -> str:
    """The library of the job's own JAX, of the locked JAX, or the folder that a TPU VM image uses."""
    environments = (os.path.dirname(os.path.dirname(python)), sys.prefix)
    found = [path for own in environments for path in glob.glob(f"{own}/lib/python3*/site-packages/libtpu/libtpu.so")]
    return next(iter(found), "/lib")
