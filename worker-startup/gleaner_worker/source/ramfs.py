"""A folder in memory for jobs, mounted once on each host."""

import os
import subprocess

from ..jobs.mounts import is_inside
from ..jobs.prepared import SourceFailed

_MAX_BYTES = 32 << 30
_MARK = "gleaner-ramfs"
_RESERVED = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/boot", "/run", "/tmp", "/var/tmp")


def mount_ramfs(path: str, home: str) -> None:
    """Mounts a file system in memory at `path`, mode 1777. Raises SourceFailed with one line."""
    where = os.path.realpath(path)
    if where == "/" or any(is_inside(where, folder) for folder in (*_RESERVED, os.path.realpath(home))):
        raise SourceFailed(
            "setup", f"Failed to mount ramfs_dir {path}: the path is reserved; name another, such as /mnt/ramfs"
        )
    if _is_mounted(where):
        return
    if os.geteuid() != 0:
        raise SourceFailed(
            "setup", f"Failed to mount ramfs_dir {path}: the agent runs without root; start the agent as root"
        )
    if (parent := _parent_of_others(where)) is not None:
        raise SourceFailed(
            "setup", f"Failed to mount ramfs_dir {path}: other users may change {parent}; name a folder outside it"
        )
    try:
        os.makedirs(where, exist_ok=True)
        if os.listdir(where):
            raise SourceFailed("setup", f"Failed to mount ramfs_dir {path}: it is not empty; name an empty folder")
    except OSError as error:
        raise SourceFailed("setup", f"Failed to mount ramfs_dir {path}: {error}; name another folder") from error
    size = min(_MAX_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    options = f"size={size},mode=1777,nosuid,nodev"
    command = ["mount", "-t", "tmpfs", "-o", options, _MARK, where]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceFailed("setup", f"Failed to mount ramfs_dir {path}: {' '.join(done.stderr.split())[:300]}")


def _parent_of_others(path: str) -> str | None:
    """The first folder above `path` that other users may change: they could put a symbolic link there."""
    parent = "/"
    for part in path.split("/")[1:]:
        if not os.path.isdir(parent):
            return None
        status = os.stat(parent)
        if status.st_uid != 0 or status.st_mode & 0o022:
            return parent
        parent = os.path.join(parent, part)
    return None


def _is_mounted(path: str) -> bool:
    with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
        return any(line.split()[:2] == [_MARK, path] for line in file)
