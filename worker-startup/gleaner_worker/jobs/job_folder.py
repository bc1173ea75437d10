"""The folder of one attempt on this host, and the environment of its process."""

import glob
import os
import sys
from collections.abc import Callable, Mapping

from ..storage.untrusted_files import open_untrusted
from .prepared_code import PreparedCode
from .programs import Programs
from .user import JobUser, remove

_RUN_JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_job.py")
_READER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(_RUN_JOB))), "gleaner_reader")


def path_of_attempt(home: str, order: dict, epoch: int) -> str:
    """The folder of an attempt. It exists from the start of the process until the end of the attempt."""
    return os.path.realpath(os.path.join(home, "jobs", f"{order['id']}-e{epoch}"))


class JobFolder:
    """Makes the folder. It belongs to the agent until all its files exist, so that the job user cannot replace a file.

    home: the agent's folder. order: the job, as worker-api sends it. machine: variables of the cluster and for libtpu.
    Raises OSError.
    """

    is_restarted = False  # with another source; then its programs are not those of the first one

    def __init__(
        self, home: str, order: dict, epoch: int, user: JobUser, machine: Mapping[str, str], prepared: PreparedCode
    ):
        self.order, self.user, self._machine = order, user, machine
        self.path = path_of_attempt(home, order, epoch)
        self.remove()
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        os.mkdir(self.path, 0o700)
        self.result, self.report = os.path.join(self.path, "result"), os.path.join(self.path, "report")
        self._started, self._phase = os.path.join(self.path, "started"), os.path.join(self.path, "phase")
        self.tmp, self.artifacts, self._home = (self._make(name) for name in ("tmp", "artifacts", "home"))
        self.checkpoint, self.copies = self._make("checkpoint"), f"{self.path}-versions"
        self._programs, self._packages = self._make("programs"), self._make("packages")
        os.symlink(_READER, os.path.join(self._packages, "gleaner_reader"))
        self._kept = Programs(os.path.join(os.path.dirname(self.path), "programs"), order, prepared)
        self._kept.lend(self._programs)
        if order["code"] is not None:
            path = os.path.join(self.path, "job.py")
            with open(path, "x", encoding="utf-8", errors="replace") as file:
                file.write(order["code"])
            self._give(path)
        self._give(self.path)

    def argv(self, prepared: PreparedCode) -> list[str]:
        """The program of the process and its arguments."""
        if self.order["code"] is not None:
            # Without -P the folder of the script would come before the standard library.
            files = (os.path.join(self.path, "job.py"), self.report, self._started, self._phase)
            return [prepared.python, "-P", _RUN_JOB, *files, *(self.order.get("args") or ())]
        command = self.order["command"]
        return ["bash", "-c", command] if isinstance(command, str) else list(command)

    def environment(self, prepared: PreparedCode) -> dict[str, str]:
        """All variables of the process."""
        number, base = self.order.get("challenge_number"), prepared.base_environment()
        # Behind the source, so that a package of the job wins.
        python_path = prepared.environment.get("PYTHONPATH", base["PYTHONPATH"])
        return {
            **base,
            **(self.order.get("env") or {}),
            **self._machine,
            "HOME": self._home,
            "TMPDIR": self.tmp,
            "JOB_ID": self.order["id"],
            "JOB_RESULT": self.result,
            "JOB_ARTIFACTS": self.artifacts,
            "JOB_CHECKPOINT": self.checkpoint,
            "JOB_CONFIG": "",  # PreparedCode names the file of an environment with a config file
            "CHALLENGE_NUMBER": "" if number is None else str(number),
            **_libtpu(prepared.python),
            "JAX_COMPILATION_CACHE_DIR": self._programs,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            **prepared.environment,
            "PYTHONPATH": os.pathsep.join(filter(None, [python_path, self._packages])),
        }

    @property
    def has_started(self) -> Callable[[], bool] | None:
        """Tells whether the code runs, once JAX has started. None for a command, which starts at once."""
        return None if self.order["code"] is None else lambda: os.path.lexists(self._started)

    def phase(self) -> str:
        """`waiting` while the code waits for other hosts, `ended` after its end, else `running`."""
        try:
            with open_untrusted(self._phase, self.user.uid) as file:
                phase = file.read(20).decode("ascii", "replace")
        except (OSError, ValueError):
            return "running"
        return phase if phase in ("waiting", "ended") else "running"

    def clear_result(self) -> None:
        """Deletes the result and the reports of a process that was stopped for a new source."""
        remove(self.result, self.report, self._started, self._phase)

    def clear_checkpoint(self) -> None:
        remove(self.checkpoint)
        self._make("checkpoint")

    def keep_programs(self) -> None:
        """Keeps what an ended attempt has compiled for the next attempt of the same code."""
        if self.user.is_isolated and not self.is_restarted:
            self._kept.keep(self._programs, self.user.uid)

    def remove(self) -> None:
        remove(self.path, f"{self.path}-versions")

    def _make(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.mkdir(path, 0o700)
        self._give(path)
        return path

    def _give(self, path: str) -> None:
        if self.user.is_isolated:
            os.chown(path, self.user.uid, self.user.gid, follow_symlinks=False)


def _libtpu(python: str) -> dict[str, str]:
    """The path of libtpu.so in the job's environment or in the agent's; without either, the folder of a TPU VM image.

    Empty on a host of the CPU backend, where JAX warns of the variable.
    """
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return {}
    environments = (os.path.dirname(os.path.dirname(python)), sys.prefix)
    libraries = [
        path for own in environments for path in glob.glob(f"{own}/lib/python3*/site-packages/libtpu/libtpu.so")
    ]
    return {"TPU_LIBRARY_PATH": next(iter(libraries), "/lib")}
