"""The prepared code and Python of a job, and the error of a failed preparation."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Variables of the agent that jobs and commands inherit. XLA_FLAGS is the number of chips of a host of the local cloud.
_INHERITED = ("LANG", "LC_ALL", "TZ", "JAX_PLATFORMS", "XLA_FLAGS")


@dataclass(frozen=True)
class PreparedCode:
    """The code and the environment of a job, ready for its process."""

    python: str  # path of the Python that runs the job
    source_folder: str | None  # checked out code, readable for the job user
    ran: dict  # the versions that run, as worker-api accepts them
    environment: Mapping[str, str] = field(default_factory=dict)  # further variables of the job
    visible: tuple[str, ...] = ()  # further paths that the job reads
    ramfs: str | None = None  # folder in memory, below /mnt, that each process gets for itself

    def base_environment(self) -> dict[str, str]:
        """Variables of every process that runs this code, besides `environment`."""
        return {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "PATH": f"{os.path.dirname(self.python)}:{SYSTEM_PATH}",
            "JOB_SOURCE": self.source_folder or "",
            "PYTHONPATH": self.source_folder or "",
            "PYTHONUNBUFFERED": "1",
            # Bytecode is code: a job reads that of the agent, and writes none.
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"PYTHONPYCACHEPREFIX": sys.pycache_prefix} if sys.pycache_prefix else {}),
        }

    def all_visible(self) -> list[str]:
        """Paths that every process with this code reads."""
        source = [self.source_folder] if self.source_folder else []
        bytecode = [sys.pycache_prefix] if sys.pycache_prefix else []
        return [*visible_of(self.python), *source, *bytecode, *self.visible]


def visible_of(python: str) -> list[str]:
    """Folders that this Python needs to start. A system Python lies in /usr, which every user can read."""
    folders = {os.path.dirname(os.path.dirname(path)) for path in (python, os.path.realpath(python))}
    return [path for path in folders if path not in ("/", "/usr", "/usr/local")]


class SourceFailed(Exception):
    """The source or environment of a job cannot be prepared. cause: `source`, `setup`, `isolation` or `machine`."""

    def __init__(self, cause: str, reason: str):
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
