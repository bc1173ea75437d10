"""The descendants of a process and their memory, and whether a user has processes, as /proc shows them."""

import os
import time

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> list[int]:
    """Pids of the living descendants of `root`. A zombie counts as dead."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name in parentheses may hold spaces and parentheses.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        children.setdefault(int(parent), []).append(int(entry))
        if state in (b"Z", b"X"):
            dead.add(int(entry))
    pids, waiting = [], list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        pids.append(pid)
        waiting += children.get(pid, ())
    return [pid for pid in pids if pid not in dead]


def has_processes(uid: int) -> bool:
    """Whether a living process runs as this user. A zombie counts as dead."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/status", "rb") as file:
                fields = dict(line.split(b":", 1) for line in file if line.startswith((b"State:", b"Uid:")))
        except (OSError, ValueError):
            continue
        real, _, saved, _ = map(int, fields[b"Uid"].split())
        if uid in (real, saved) and fields[b"State"].split()[0] not in (b"Z", b"X"):
            return True
    return False


def memory_bytes(root: int, max_bytes: int, until: float = float("inf")) -> int:
    """Memory of all descendants of `root`, and of their private /dev/shm.

    Resident sizes count a shared page once for each process. A sum above `max_bytes` is therefore measured again by
    proportional sizes, the largest process first. This takes milliseconds for each process, and a fork bomb has
    thousands. So the measurement stops above `max_bytes`, or at the monotonic time `until`, with the sum so far.
    """
    total = _shared_memory_bytes(root)
    sizes = {pid: _resident_bytes(pid) for pid in descendants(root)}
    if total + sum(sizes.values()) <= max_bytes:
        return total + sum(sizes.values())
    for pid in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if total > max_bytes or time.monotonic() >= until:
            break
        total += _proportional_bytes(pid)
    return total


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _resident_bytes(pid)


def _shared_memory_bytes(guard: int) -> int:
    """Size of /dev/shm in the guard's mount namespace. Zero if the guard shares the namespace of this process."""
    try:
        if os.readlink(f"/proc/{guard}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return 0
        usage = os.statvfs(f"/proc/{guard}/root/dev/shm")
        return (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    except OSError:
        return 0
