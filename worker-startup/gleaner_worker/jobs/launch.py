"""The guard of one job process: sets limits, drops root, waits, and kills the remaining descendants.

The guard is a separate program, because a process with threads cannot run Python between fork and exec. It reads its
order as one line of JSON from standard input, which stays open as a control pipe. `T` sends TERM to the process. `K`
kills the process and all its descendants, and so does the end of the pipe when the agent ends. The guard reports lines
of JSON: {"pid"}, then {"exit", "signal"}, or {"error"}.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

from .descendants import descendants
from .kill_user import kill_user
from .mounts import show_only

_SET_NO_NEW_PRIVS, _SET_CHILD_SUBREAPER = 38, 36
_IS_LINUX = sys.platform == "linux"


def main() -> None:
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    order = json.loads(_read_line())
    try:
        pid = _start(order, report)
    except (OSError, ValueError) as error:
        _report(report, {"error": str(error)})
        os._exit(1)
    _report(report, {"pid": pid})
    _close_output()
    status, has_agent = _wait(pid)
    _kill_descendants()
    _reap_descendants()
    if not has_agent and order["uid"] is not None:
        kill_user(order["uid"])
    code = os.waitstatus_to_exitcode(status)
    _report(report, {"exit": code if code >= 0 else None, "signal": -code if code < 0 else None})
    os._exit(0)


def _start(order: dict, report: int) -> int:
    """Starts the process and returns its pid. Raises OSError if it cannot be isolated."""
    if _IS_LINUX and _prctl(_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError("prctl refuses a subreaper; use a Linux image that allows prctl")
    if order["uid"] is not None:
        memory = order["limits"]["memory_bytes"]
        show_only(order["visible"], order["hidden"], order["tmp"], memory, order["uid"], order["gid"])
    problem, problem_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(problem)
        try:
            os.setsid()
            _limit(order["limits"], order["uid"] is not None)
            if order["uid"] is not None:
                _drop_user(order)
            os.umask(0o077)
            os.chdir(order["folder"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        except BaseException as error:
            os.write(problem_end, f"{type(error).__name__}: {error}".encode()[:4000])
            os._exit(1)
        os.close(problem_end)
        _execute(order["argv"], order["environment"])
    os.close(problem_end)
    text = b"".join(iter(lambda: os.read(problem, 4096), b"")).decode(errors="replace")
    os.close(problem)
    if text:
        os.waitpid(pid, 0)
        raise OSError(text)
    return pid


def _limit(limits: dict, is_isolated: bool) -> None:
    _set_limit(resource.RLIMIT_NOFILE, limits["open_files"])
    _set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _set_limit(resource.RLIMIT_CORE, 0)
    if is_isolated:
        # Without a separate user, the limit would count every process of the person.
        _set_limit(resource.RLIMIT_NPROC, limits["processes"])
        # libtpu pins memory for the chips.
        _set_limit(resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY)
    if _IS_LINUX:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")


def _set_limit(kind: int, limit: int) -> None:
    try:
        resource.setrlimit(kind, (limit, limit))
    except ValueError:  # a container may lack the right to raise a limit; its own limit is lower
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (hard, hard))


def _drop_user(order: dict) -> None:
    os.setgroups([])
    os.setresgid(order["gid"], order["gid"], order["gid"])
    os.setresuid(order["uid"], order["uid"], order["uid"])
    if _prctl(_SET_NO_NEW_PRIVS, 1) != 0:
        raise OSError("prctl refuses no_new_privs; use a Linux image that allows prctl")
    for path in order["visible"]:
        if not os.access(path, os.R_OK):
            raise PermissionError(f"user {order['uid']} cannot read {path}; run chmod o+x on each folder above it")
    for path in order["secret"]:
        if os.access(path, os.R_OK):
            raise PermissionError(f"user {order['uid']} can read {path}; run chmod o-rwx on it")


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """Replaces this process. A program that cannot start exits as in a shell: 126 or 127, and one line of output."""
    try:
        os.execvpe(argv[0], argv, environment)
    except BaseException as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        os.write(2, f"Failed to run {argv[0]}: {text}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _wait(pid: int) -> tuple[int, bool]:
    """Returns the status of the process and whether the agent is alive. Obeys the control pipe and reaps orphans."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control = [0]
    while True:
        while (ended := _reap()) is not None:
            if ended[0] == pid:
                return ended[1], bool(control)
        readable, _, _ = select.select([woken, *control], [], [], 1)
        if woken in readable:
            os.read(woken, 4096)
        if 0 in readable:
            commands = os.read(0, 64)
            if b"T" in commands:
                _signal_group(pid, signal.SIGTERM)
            if b"K" in commands or not commands:
                _kill_descendants()
                _signal_group(pid, signal.SIGKILL)
            if not commands:
                control = []


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _kill_descendants() -> None:
    """Stops all descendants first, because a stopped process cannot fork, and then kills them."""
    if not _IS_LINUX:
        return
    stopped: set[int] = set()
    give_up = time.monotonic() + 5
    while (new := set(descendants(os.getpid())) - stopped) and time.monotonic() < give_up:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in descendants(os.getpid()):
        _send(pid, signal.SIGKILL)


def _reap_descendants() -> None:
    """Waits up to 10 s for every descendant, so that all descendants have ended when the guard ends."""
    give_up = time.monotonic() + 10
    try:
        while time.monotonic() < give_up:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
    except ChildProcessError:
        pass


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _close_output() -> None:
    """Closes the guard's copy of the output, so that the reader sees the end when the process ends."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _prctl(option: int, value: int) -> int:
    return ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _read_line() -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(1)
        line += piece
    return bytes(line)


def _report(fd: int, value: dict) -> None:
    try:
        os.write(fd, json.dumps(value).encode() + b"\n")
    except OSError:  # the agent has ended
        pass
