"""One process of the job user, from its start to the end of its last descendant."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from ..failures import Failure
from .control_group import ControlGroup, make_group
from .limits import Limits
from .user import NAMESPACES, NO_NETWORK, JobUser, NotIsolated, make_folder, remove

_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# -I: the guard ignores the agent's variables and current folder. -S: it needs no installed package.
_IMPORT = f"import sys; sys.path.insert(0, {_PACKAGE_PARENT!r}); from gleaner_worker.jobs."
_CHECK_EVERY_S = 0.2
_TERM_S = 10.0  # from TERM to KILL
_END_S = 20.0  # from KILL to the end of the guard
_PIECE_BYTES = 1 << 18
_MEASURED = ("memory", "disk")  # by the guard


@dataclass(frozen=True)
class ProcessEnd:
    """How a process ended: by its exit code or by a signal."""

    exit_code: int | None
    signal: int | None
    cause: str | None  # 'timeout', 'memory', 'disk', 'stopped', or None if the process ended by itself
    start_s: float = 0.0  # seconds before the start of the user's code, which `wall_s` does not count


def run_process(
    argv: Sequence[str],
    *,
    user: JobUser,
    folder: str,
    environment: Mapping[str, str],
    limits: Limits,
    write: Callable[[bytes], None],
    stop: threading.Event,
    own: str | None = None,
    visible: Sequence[str] = (),
    tmp: str | None = None,
    ramfs: str | None = None,
    has_started: Callable[[], bool] | None = None,
    on_death: Callable[[], None] = lambda: None,
) -> ProcessEnd:
    """Runs a program in `folder` as the job user, and returns when all its descendants are dead.

    environment: all variables of the process. write: receives stdout and stderr as they come, on another thread.
    stop: ends the process with TERM, and 10 s later with KILL. own: the folder that the process may change; `folder`
    if absent. visible: files and folders that the user reads, besides this Python, the worker bundle and `folder`; the
    rest of the agent's folder is hidden. tmp: folder that replaces /tmp; a new one if absent. ramfs: path of a folder
    in memory below /mnt. has_started: whether the user's code runs; without it, the process is the user's code.
    on_death: called at once when the process dies, before the end of its descendants. Raises NotIsolated with one line,
    and Failure where the machine killed the guard of the process.
    """
    group = None
    with contextlib.ExitStack() as end:
        if user.is_isolated:
            tmp = tmp or end.enter_context(_temporary_folder(user))
            group = make_group(user.uid, limits.memory_bytes, limits.processes)
        if group is not None:
            end.callback(group.remove)
        order = {  # as guard.py reads it
            "argv": list(argv),
            "environment": dict(environment),
            "folder": os.path.realpath(folder),
            "uid": user.uid if user.is_isolated else None,
            "gid": user.gid,
            "groups": user.groups,
            "has_network": user.has_network,
            "group": group.entrance if group is not None else None,
            "limits": asdict(limits),
            "visible": sorted({*_own_paths(), os.path.realpath(folder), *map(os.path.realpath, visible)}),
            "hidden": [user.home] if user.home else [],
            "secret": [os.path.join(user.home, each) for each in ("host-secret", "work", "order")] if user.home else [],
            "own": own or folder,
            "tmp": tmp,
            "ramfs": ramfs,
        }
        return _Guarded(order, limits, group, write, has_started, on_death).run(stop)


@contextlib.contextmanager
def _temporary_folder(user: JobUser) -> Iterator[str]:
    path = make_folder(os.path.join(user.home or tempfile.gettempdir(), "jobs", f"tmp-{uuid.uuid4().hex}"), user)
    try:
        yield path
    finally:
        remove(path)


def _own_paths() -> set[str]:
    paths = {sys.prefix, sys.base_prefix, sys.executable, _PACKAGE_PARENT}
    return {os.path.realpath(path) for path in paths if path}


class _Guarded:
    """A guard (guard.py) with its process: the control pipe, the reports and the output."""

    def __init__(
        self,
        order: dict,
        limits: Limits,
        group: ControlGroup | None,
        write: Callable[[bytes], None],
        has_started: Callable[[], bool] | None,
        on_death: Callable[[], None],
    ):
        self._on_death = on_death
        self._limits, self._group, self._has_started, self._start_s = limits, group, has_started, 0.0
        self._cause: str | None = None
        self._reports: list[dict] = []
        read_end, write_end = os.pipe()
        network = [] if order["has_network"] else [NO_NETWORK]
        world = [] if order["uid"] is None else [*NAMESPACES, *network]
        self._guard = subprocess.Popen(
            [*world, sys.executable, "-I", "-S", "-c", f"{_IMPORT}guard import main; main()", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            pass_fds=(write_end,) if group is None else (write_end, group.entrance),
            start_new_session=True,
        )
        os.close(write_end)
        self._output = threading.Thread(target=self._copy_output, args=(write,), name="job-output", daemon=True)
        self._report = threading.Thread(target=self._read_reports, args=(read_end,), name="job-report", daemon=True)
        self._started = threading.Event()
        self._output.start()
        self._report.start()
        self._send(json.dumps(order).encode() + b"\n")

    def run(self, stop: threading.Event) -> ProcessEnd:
        try:
            while not self._started.wait(_CHECK_EVERY_S) and self._guard.poll() is None:
                pass
            # `unshare` may be killed before its child is bound to end with it. The end of the pipe ends that child.
            is_lost = not self._started.is_set() and (self._guard.returncode or 0) < 0
            if not is_lost:
                self._watch(stop)
        finally:
            with contextlib.suppress(OSError):  # a guard that has ended refuses the rest of the commands
                self._guard.stdin.close()  # type: ignore[union-attr]
            self._guard.wait()
        self._output.join(_END_S)
        self._report.join(_END_S)
        if is_lost:
            raise _without_report(self._guard.returncode)
        last = self._reports[-1]
        if "error" in last:
            raise NotIsolated(f"Failed to isolate a job: {last['error']}")
        if (code := last.get("guard")) is not None:
            raise _without_report(code)
        if "exit" not in last:  # a guard without isolation, killed by its process
            return ProcessEnd(None, signal.SIGKILL, self._cause, self._start_s)
        if last["signal"] == signal.SIGKILL and self._cause is None and self._is_out_of_memory():
            self._cause = "memory"
        elif self._cause is None and any("disk" in report for report in self._reports):  # found at the end
            self._cause = "disk"
        return ProcessEnd(last["exit"], last["signal"], self._cause, self._start_s)

    def _watch(self, stop: threading.Event) -> None:
        launched, has_started = time.monotonic(), self._has_started
        deadline = launched + self._limits.wall_s
        killed = False
        self._oom_kills = _oom_kills()
        while self._report.is_alive():
            began = time.monotonic()
            if has_started is not None:
                self._start_s = min(began - launched, self._limits.start_s)
                deadline = launched + self._start_s + self._limits.wall_s
                if has_started():
                    has_started = None
            if self._cause is None:
                if stop.is_set():
                    self._end("stopped", began)
                elif began >= deadline:
                    self._end("timeout", began)
                elif over := next((cause for report in self._reports for cause in _MEASURED if cause in report), None):
                    self._end(over, began - _TERM_S)
            elif not killed and began >= self._kill_at:
                killed = True
                self._send(b"K")
            elif killed and began >= self._kill_at + _END_S:
                self._guard.kill()
                return
            wait_s = min(_CHECK_EVERY_S, max(0.01, deadline - time.monotonic()))
            self._report.join(wait_s if self._cause is None else 0.05)

    def _is_out_of_memory(self) -> bool:
        """Whether the kernel has killed for lack of memory: in the group of the process, or without one anywhere."""
        return self._group.oom_kills() > 0 if self._group is not None else _oom_kills() > self._oom_kills

    def _end(self, cause: str, now: float) -> None:
        self._cause, self._kill_at = cause, now + _TERM_S
        self._send(b"T")

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the guard has ended; its report says why
            self._guard.stdin.write(data)  # type: ignore[union-attr]
            self._guard.stdin.flush()  # type: ignore[union-attr]

    def _copy_output(self, write: Callable[[bytes], None]) -> None:
        fd = self._guard.stdout.fileno()  # type: ignore[union-attr]
        while piece := os.read(fd, _PIECE_BYTES):
            write(piece)

    def _read_reports(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as file:
            for line in file:
                self._reports.append(json.loads(line))
                if "died" in self._reports[-1]:
                    self._on_death()
                self._started.set()
        if not self._reports:
            self._reports.append({"guard": self._guard.wait()})
        self._started.set()


def _without_report(code: int) -> Exception:
    """The end of a guard that says nothing. A machine that ends kills it, and isolates jobs at another time."""
    if code < 0:
        return Failure("infrastructure", f"signal {-code} ended the guard of a process before the process began")
    return NotIsolated(f"Failed to isolate a job: the guard ended with {code}; read its output, and try again")


def _oom_kills() -> int:
    """Number of processes that the kernel has killed for lack of memory since the boot."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except OSError:
        return 0
