"""What an attempt has written on the disk, as the guard sees it."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MOST_FILES = 1_000_000  # the guard counts them within seconds


class DiskUsage(NamedTuple):
    """The bytes on the disk, and the number of files and folders."""

    size_bytes: int
    files: int

    def exceeds(self, most: "DiskUsage") -> bool:
        return self.size_bytes > most.size_bytes or self.files > most.files


def quota(folder: str, size_bytes: int | None, files: int | None) -> DiskUsage:
    """The most that may be written. None stands for half of what is free on the disk of `folder`, and for files at most
    a million."""
    disk = os.statvfs(folder)
    # A file system that makes room for its inodes as it needs them, such as btrfs, states none.
    return DiskUsage(
        disk.f_bavail * disk.f_frsize // 2 if size_bytes is None else size_bytes,
        min(_MOST_FILES, disk.f_favail // 2 if disk.f_files else _MOST_FILES) if files is None else files,
    )


def disk_usage(folders: Iterable[str], pids: Iterable[int], most: DiskUsage) -> DiskUsage:
    """What is below the folders, with the deleted files that these processes hold open or mapped.

    A file with several names counts once. Stops above `most`; a tree too deep to be walked counts as more than that.
    """
    seen: set[tuple[int, int]] = set()
    total = DiskUsage(0, 0)
    disks = {os.stat(folder).st_dev for folder in folders}
    try:
        for found in _all(folders, pids):
            is_held = found.st_nlink == 0 and found.st_dev in disks and stat.S_ISREG(found.st_mode)
            key = found.st_dev, found.st_ino
            if key in seen or not (found.st_nlink or is_held):
                continue
            if found.st_nlink != 1 and not stat.S_ISDIR(found.st_mode):
                seen.add(key)
            total = DiskUsage(total.size_bytes + found.st_blocks * 512, total.files + 1)
            if total.exceeds(most):
                break
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return DiskUsage(most.size_bytes + 1, most.files + 1)
    return total


def _all(folders: Iterable[str], pids: Iterable[int]) -> Iterator[os.stat_result]:
    for folder in folders:
        yield from _below(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    for pid in pids:
        for kind in ("fd", "map_files"):
            try:
                names = os.listdir(f"/proc/{pid}/{kind}")
            except OSError:  # it has ended
                continue
            for name in names:
                try:
                    found = os.stat(f"/proc/{pid}/{kind}/{name}")
                except OSError:
                    continue
                if found.st_nlink == 0:
                    yield found


def _below(top: int) -> Iterator[os.stat_result]:
    """Every file and folder below the open folder, which it closes. It needs no path, so no depth hides a file."""
    waiting = [(top, os.listdir(top))]
    while waiting:
        folder, names = waiting[-1]
        if not names:
            waiting.pop()
            os.close(folder)
            continue
        name = names.pop()
        try:
            found = os.lstat(name, dir_fd=folder)
            yield found
            if stat.S_ISDIR(found.st_mode):
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                waiting.append((below, os.listdir(below)))
        except (FileNotFoundError, NotADirectoryError, PermissionError):  # changed since; root may read every folder
            continue
