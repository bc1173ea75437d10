"""The limits of a job's process: those that a person asked for, and the defaults of the machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

_GB = 10**9


@dataclass(frozen=True)
class Limits:
    """`wall_s`, `memory_bytes`, `disk_bytes` and `files` limit the process with all its descendants; the others are
    limits of setrlimit.

    disk_bytes, files: the most on the disk that all of them write; None for half of what is free.
    start_s: most seconds before the start of the user's code that `wall_s` does not count.
    """

    wall_s: float
    memory_bytes: int
    processes: int
    open_files: int
    file_bytes: int
    disk_bytes: int | None = None
    files: int | None = None
    start_s: float = 0.0


def job_limits(asked: Mapping[str, float | None], wall_s: float) -> Limits:
    """The limits of a job. Default limits leave room for the agent, and let JAX use every core of a host."""
    memory_gb, file_gb, disk_gb, files = map(asked.get, ("memory_gb", "file_gb", "disk_gb", "files"))
    nine_tenths = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10
    return Limits(
        wall_s=wall_s,
        memory_bytes=min(int(memory_gb * _GB) if memory_gb else 1 << 62, nine_tenths),
        processes=int(asked.get("processes") or _most_processes()),
        open_files=int(asked.get("open_files") or 65_536),
        file_bytes=int((file_gb or 50) * _GB),
        disk_bytes=int(disk_gb * _GB) if disk_gb else None,
        files=int(files) if files else None,
    )


def _most_processes() -> int:
    """Enough for the threads of JAX on every core, and few enough that the agent keeps running beside a fork bomb."""
    return min(16_384, max(2048, 64 * (os.cpu_count() or 1)))
