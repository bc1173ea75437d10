"""The guard of one job process: sets limits, drops root, waits, and kills the remaining descendants.

The guard is a separate program, because a process with threads cannot run Python between fork and exec. It is process
1 of the namespaces of its attempt, so all their processes end with it. Without isolation it is a plain process.

It reads its order as one line of JSON from standard input, which stays open as a control pipe. `T` sends TERM to the
process. `K` kills the process and all its descendants, and so does the end of the pipe when the agent ends. The guard
reports lines of JSON: {"pid"}, {"memory"} or {"disk"} above a limit, then {"exit", "signal"}, or {"error"}.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

from .descendants import descendants, memory_bytes, shared_memory_bytes
from .mounts import is_inside, show_only
from .written import Written, quota, written

_SET_NO_NEW_PRIVS, _SET_CHILD_SUBREAPER = 38, 36
_KEYCTL, _JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1  # of a network interface
_MEASURE_EVERY_S = 0.2
_MEASURE_S = 2.0  # limit for measuring the memory of many processes
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
    status = _wait(pid, order, report)
    _kill_others(order)
    _reap_descendants()
    code = os.waitstatus_to_exitcode(status)
    _report(report, {"exit": code if code >= 0 else None, "signal": -code if code < 0 else None})
    os._exit(0)


def _start(order: dict, report: int) -> int:
    """Starts the process and returns its pid. Raises OSError if it cannot be isolated."""
    if _IS_LINUX and _prctl(_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError("prctl refuses a subreaper; use a Linux image that allows prctl")
    if order["uid"] is not None:
        _enter_world(order)
    problem, problem_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(problem)
        try:
            os.setsid()
            if order["group"] is not None:
                os.write(order["group"], b"0")
                os.close(order["group"])
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


def _enter_world(order: dict) -> None:
    """Completes the namespaces that this process has: System V memory, the network and the files."""
    memory = order["limits"]["memory_bytes"]
    with contextlib.suppress(FileNotFoundError), open("/proc/sys/kernel/shmall", "w", encoding="ascii") as file:
        file.write(str(memory // resource.getpagesize()))  # a kernel without System V has no such file
    if not order["has_network"]:
        _raise_loopback()
    show_only(
        order["visible"],
        order["own"],
        order["hidden"],
        order["tmp"],
        order["ramfs"],
        memory,
        order["uid"],
        order["gid"],
    )


def _raise_loopback() -> None:
    """JAX and libtpu of one host connect to themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack_from("H", found, 16)[0] | _IS_UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags))


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
    os.setgroups(order["groups"])
    os.setresgid(order["gid"], order["gid"], order["gid"])
    os.setresuid(order["uid"], order["uid"], order["uid"])
    if _prctl(_SET_NO_NEW_PRIVS, 1) != 0:
        raise OSError("prctl refuses no_new_privs; use a Linux image that allows prctl")
    _join_keyring()
    for path in order["visible"]:
        if not os.access(path, os.R_OK):
            raise PermissionError(f"user {order['uid']} cannot read {path}; run chmod o+x on each folder above it")
    for path in order["secret"]:
        if os.access(path, os.R_OK):
            raise PermissionError(f"user {order['uid']} can read {path}; run chmod o-rwx on it")


def _join_keyring() -> None:
    """Leaves the session keyring of the agent, which would carry keys from one attempt to the next."""
    number = _KEYCTL.get(os.uname().machine)
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None) >= 0:
        return
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):  # a kernel or a container without keyrings
        raise OSError(f"keyctl refuses a session keyring: {os.strerror(ctypes.get_errno())}; restart this machine")


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """Replaces this process. A program that cannot start exits as in a shell: 126 or 127, and one line of output."""
    try:
        os.execvpe(argv[0], argv, environment)
    except BaseException as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        os.write(2, f"Failed to run {argv[0]}: {text}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _wait(pid: int, order: dict, report: int) -> int:
    """Returns the status of the process. Obeys the control pipe, reaps orphans, and measures memory and disk."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control = [0]
    measure_at, most = 0.0, _most_written(order)
    while True:
        while (ended := _reap()) is not None:
            if ended[0] == pid:
                _measure_disk(order, report, most)
                return ended[1]
        if time.monotonic() >= measure_at:
            measure_at = _measure(order, report, most)
        pause_s = max(0.01, min(1.0, measure_at - time.monotonic()))
        readable, _, _ = select.select([woken, *control], [], [], pause_s)
        if woken in readable:
            os.read(woken, 4096)
        if 0 in readable:
            commands = os.read(0, 64)
            if b"T" in commands:
                _signal_group(pid, signal.SIGTERM)
            if b"K" in commands or not commands:
                _kill_others(order)
                _signal_group(pid, signal.SIGKILL)
            if not commands:
                control = []


def _measure(order: dict, report: int, most: Written) -> float:
    """Reports memory or disk above the limit. Returns the time of the next measurement."""
    began = time.monotonic()
    # A control group has a limit of memory of its own.
    if (order["group"] is None and _measure_memory(order, report)) or _measure_disk(order, report, most):
        return float("inf")
    now = time.monotonic()
    # Measuring many processes is slow; this pause limits it to a tenth of one core.
    return now + max(_MEASURE_EVERY_S, 10 * (now - began))


def _measure_memory(order: dict, report: int) -> bool:
    began, limit = time.monotonic(), order["limits"]["memory_bytes"]
    in_memory = [folder for folder in ("/dev/shm", order["ramfs"]) if folder]
    shared = shared_memory_bytes(in_memory) if order["uid"] is not None else 0
    is_over = memory_bytes(os.getpid(), limit, began + _MEASURE_S, shared) > limit
    if is_over:
        _report(report, {"memory": True})
    return is_over


def _writable(order: dict) -> list[str]:
    """The folders on the disk that the process may change."""
    own, tmp = order["own"], order["tmp"]
    return [own] if tmp is None or is_inside(tmp, own) else [own, "/tmp"]


def _most_written(order: dict) -> Written:
    """The quota, beside what the folders hold at the start."""
    limits, folders = order["limits"], _writable(order)
    most = quota(folders[0], limits["disk_bytes"], limits["files"])
    before = written(folders, (), Written(1 << 62, 1 << 62))
    return Written(before.size_bytes + most.size_bytes, before.files + most.files)


def _measure_disk(order: dict, report: int, most: Written) -> bool:
    is_over = written(_writable(order), descendants(os.getpid()), most).exceeds(most)
    if is_over:
        _report(report, {"disk": True})
    return is_over


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


def _kill_others(order: dict) -> None:
    """Kills every process of the namespace, or without one every descendant of the guard."""
    if order["uid"] is None:
        return _kill_descendants()
    try:
        os.kill(-1, signal.SIGKILL)
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
