"""Control groups of jobs: the kernel counts all memory of an attempt, with shared memory and the page cache."""

import contextlib
import functools
import logging
import os
import time

log = logging.getLogger(__name__)

_ROOT = "/sys/fs/cgroup"
_DELEGATED = "GLEANER_CGROUP_DELEGATED"  # startup.sh sets it where systemd leaves the group of the unit to the agent
_AGENT = "agent"
_WEIGHT = 50  # of the CPU; the agent has 100
_REMOVE_S = 5.0


class ControlGroup:
    """The control group of one process of a job.

    entrance: a file of the group. A process that writes 0 to it enters the group.
    """

    def __init__(self, path: str):
        self._path = path
        # A process in the read-only world of an attempt could not open it.
        self.entrance = os.open(os.path.join(path, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    def oom_kills(self) -> int:
        """Number of processes of the group that the kernel has killed at the limit of memory."""
        with open(os.path.join(self._path, "memory.events"), encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))

    def remove(self) -> None:
        """The kernel may count a dead process of the group for some milliseconds more."""
        os.close(self.entrance)
        give_up = time.monotonic() + _REMOVE_S
        while True:
            try:
                return os.rmdir(self._path)
            except OSError as error:
                if time.monotonic() >= give_up:
                    return log.warning("Failed to remove %s: %s", self._path, error.strerror)
            time.sleep(0.01)


def make_group(uid: int, memory_bytes: int, processes: int) -> ControlGroup | None:
    """A new group with limits. None where the agent has no control groups of its own: then the guard measures."""
    parent = _parent()
    if parent is None:
        return None
    path = os.path.join(parent, f"job-{uid}-{time.monotonic_ns()}")
    os.mkdir(path)
    _write(path, "memory.max", memory_bytes)
    _write(path, "memory.oom.group", 1)
    with contextlib.suppress(FileNotFoundError):  # a kernel without swap
        _write(path, "memory.swap.max", 0)
    _write(path, "pids.max", processes)
    _write(path, "cpu.weight", _WEIGHT)
    return ControlGroup(path)


@functools.cache
def _parent() -> str | None:
    """The group of the agent's unit. Its controllers need a unit without processes, so the agent moves into a child."""
    if os.environ.get(_DELEGATED) != "1":
        return None
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            name = next(line[3:].strip() for line in file if line.startswith("0::"))
        # The agent that this process replaced has moved already.
        parent = _ROOT + (os.path.dirname(name) if os.path.basename(name) == _AGENT else name)
        own = os.path.join(parent, _AGENT)
        os.makedirs(own, exist_ok=True)
        with open(os.path.join(parent, "cgroup.procs"), encoding="ascii") as file:
            for pid in file.read().split():
                with contextlib.suppress(ProcessLookupError):
                    _write(own, "cgroup.procs", pid)
        _write(parent, "cgroup.subtree_control", "+cpu +memory +pids")
    except (OSError, StopIteration) as error:
        log.warning("Jobs have no control group: %s; the agent measures their memory itself", error)
        return None
    return parent


def _write(folder: str, name: str, value: object) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(str(value))
