"""The guard of one job process: starts it, measures it, waits, and kills the remaining descendants.

The guard is a separate program, because a process with threads cannot run Python between fork and exec. It is process
1 of the namespaces of its attempt, so all their processes end with it. Without isolation it is a plain process.

It reads its order as one line of JSON from standard input, which stays open as a control pipe. `T` sends TERM to the
process. `K` kills the process and all its descendants, and so does the end of the pipe when the agent ends. The guard
reports lines of JSON: {"pid"}, {"memory"} or {"disk"} above a limit, {"died"}, then {"exit", "signal"}, or {"error"}.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

from .descendants import descendants, memory_bytes, shared_memory_bytes
from .disk_usage import DiskUsage, disk_usage, quota
from .launch import start
from .mounts import is_inside

_MEASURE_EVERY_S = 0.2
_MEASURE_S = 2.0  # limit for measuring the memory of many processes


def main() -> None:
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    order = json.loads(_read_line())
    try:
        pid = start(order)
    except (OSError, ValueError) as error:
        _report(report, {"error": str(error)})
        os._exit(1)
    _report(report, {"pid": pid})
    _close_output()
    status = _wait(pid, order, report)
    _report(report, {"died": True})
    _kill_others(order)
    _reap_descendants()
    code = os.waitstatus_to_exitcode(status)
    _report(report, {"exit": code if code >= 0 else None, "signal": -code if code < 0 else None})
    os._exit(0)


def _wait(pid: int, order: dict, report: int) -> int:
    """Returns the status of the process. Obeys the control pipe, reaps orphans, and measures memory and disk."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control = [0]
    measure_at, most = 0.0, _disk_limit(order)
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


def _measure(order: dict, report: int, most: DiskUsage) -> float:
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


def _disk_limit(order: dict) -> DiskUsage:
    """The quota, beside what the folders hold at the start."""
    limits, folders = order["limits"], _writable(order)
    most = quota(folders[0], limits["disk_bytes"], limits["files"])
    before = disk_usage(folders, (), DiskUsage(1 << 62, 1 << 62))
    return DiskUsage(before.size_bytes + most.size_bytes, before.files + most.files)


def _measure_disk(order: dict, report: int, most: DiskUsage) -> bool:
    is_over = disk_usage(_writable(order), descendants(os.getpid()), most).exceeds(most)
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
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _kill_others(order: dict) -> None:
    """Kills every process of the namespace, or without one every descendant of the guard."""
    if order["uid"] is None:
        return _kill_descendants()
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _kill_descendants() -> None:
    """Stops all descendants first, because a stopped process cannot fork, and then kills them."""
    if sys.platform != "linux":
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
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _close_output() -> None:
    """Closes the guard's copy of the output, so that the reader sees the end when the process ends."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _read_line() -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(1)
        line += piece
    return bytes(line)


def _report(fd: int, value: dict) -> None:
    with suppress(OSError):  # the agent has ended
        os.write(fd, json.dumps(value).encode() + b"\n")
