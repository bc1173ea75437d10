"""The descendants of a process, and the memory that they hold, as /proc shows them."""

import os
import time
from collections.abc import Iterable

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


def memory_bytes(root: int, max_bytes: int, until: float = float("inf"), shared_bytes: int = 0) -> int:
    """Memory of all descendants of `root`, with `shared_bytes` and the files in memory that they hold open.

    Resident sizes count a shared page once for each process. A sum above `max_bytes` is therefore measured again by
    proportional sizes, the largest process first. This takes milliseconds for each process, and a fork bomb has
    thousands. So the measurement stops above `max_bytes`, or at the monotonic time `until`, with the sum so far.
    """
    sizes = {pid: _resident_bytes(pid) for pid in descendants(root)}
    total = shared_bytes + _open_memory_bytes(sizes, until)
    if total + sum(sizes.values()) <= max_bytes:
        return total + sum(sizes.values())
    for pid in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if total > max_bytes or time.monotonic() >= until:
            break
        total += _proportional_bytes(pid)
    return total


def shared_memory_bytes(folders: Iterable[str]) -> int:
    """Size of these file systems in memory, and of the System V shared memory, in the namespaces of this process."""
    usages = [os.statvfs(folder) for folder in folders if os.path.isdir(folder)]
    total = sum((usage.f_blocks - usage.f_bfree) * usage.f_frsize for usage in usages)
    try:
        with open("/proc/sysvipc/shm", encoding="ascii") as file:
            names, *rows = (line.split() for line in file)
    except OSError:  # a kernel without System V
        return total
    return total + sum(int(row[names.index(column)]) for row in rows for column in ("rss", "swap"))


def _open_memory_bytes(pids: Iterable[int], until: float) -> int:
    """Size of the files of memfd_create that these processes hold open: unmapped, they belong to no process."""
    sizes: dict[int, int] = {}
    for pid in pids:
        for path in _open_files(pid):
            if time.monotonic() >= until:
                return sum(sizes.values())
            try:
                if os.readlink(path).startswith("/memfd:"):
                    found = os.stat(path)
                    sizes[found.st_ino] = found.st_blocks * 512
            except OSError:  # closed since
                continue
    return sum(sizes.values())


def _open_files(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


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
