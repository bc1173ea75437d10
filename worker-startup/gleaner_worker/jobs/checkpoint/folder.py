"""The checkpoint folder of an attempt, seen from the agent. The job is not trusted: no link out of it is followed."""

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 32
_MAX_PATH_BYTES = 1000
# A job that opens a file while the agent asks for its writers makes the kernel send SIGIO, which would end the agent.
signal.signal(signal.SIGIO, signal.SIG_IGN)


@dataclass(frozen=True)
class FileState:
    """What changes when the content of a file changes."""

    inode: int
    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True)
class Scan:
    """The entries of the folder, by their path below it. left_out: entries that no version has, with the reason."""

    files: dict[str, FileState] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)  # with their modes
    links: dict[str, str] = field(default_factory=dict)  # symbolic links with their targets
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())


class TooMany(Exception):
    """The folder has more entries than its limit. found: some of them."""

    def __init__(self, found: Scan):
        super().__init__()
        self.found = found


def scan(root: str, uid: int, ignored: str, most: int) -> Scan | None:
    """Reads the folder without its file `ignored`. None where it changes meanwhile. Raises TooMany."""
    found = Scan()
    try:
        _scan(os.open(root, _FOLDER), "", uid, ignored, found, most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found


def _scan(fd: int, prefix: str, uid: int, ignored: str, found: Scan, most: int) -> None:
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                path, status = prefix + entry.name, entry.stat(follow_symlinks=False)
                if path == ignored:
                    continue
                if len(found.files) + len(found.folders) + len(found.links) + len(found.left_out) > most:
                    raise TooMany(found)
                if problem := _problem_of(path, status, uid):
                    found.left_out[path] = problem
                elif stat.S_ISDIR(status.st_mode):
                    try:
                        inner = os.open(entry.name, _FOLDER, dir_fd=fd)
                    except PermissionError:  # the agent is not root
                        found.left_out[path] = "it cannot be read"
                        continue
                    found.folders[path] = status.st_mode & 0o777
                    _scan(inner, path + "/", uid, ignored, found, most)
                elif stat.S_ISLNK(status.st_mode):
                    _add_link(fd, entry.name, path, found)
                else:
                    found.files[path] = state_of(status)
    finally:
        os.close(fd)


def _problem_of(path: str, status: os.stat_result, uid: int) -> str | None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if size > _MAX_PATH_BYTES or path.count("/") >= _MAX_DEPTH:
        return "its path is too long or too deep"
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        return "it is not a file, a folder or a link"
    return None if status.st_uid == uid else "it belongs to another user"


def _add_link(fd: int, name: str, path: str, found: Scan) -> None:
    target = os.readlink(name, dir_fd=fd)
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or place == ".." or place.startswith("../"):
        found.left_out[path] = "it is a link out of the folder"
    else:
        found.links[path] = target


@contextmanager
def opened_parent(root: str, path: str) -> Iterator[tuple[int, str]]:
    """Yields the folder that holds `path`, as an open descriptor, and the name in it. Follows no link."""
    *folders, name = path.split("/")
    fd = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd, name
    finally:
        os.close(fd)


def link_file(root: str, path: str, copy: str, expected: FileState, uid: int) -> bool:
    """Makes the hard link `copy` of a file of the folder. False where the file is not the one that a scan saw."""
    try:
        with opened_parent(root, path) as (fd, name):
            os.link(name, copy, src_dir_fd=fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return is_unchanged(copy, expected, uid)


def is_unchanged(copy: str, expected: FileState, uid: int) -> bool:
    status = os.lstat(copy)
    return stat.S_ISREG(status.st_mode) and status.st_uid == uid and state_of(status) == expected


def state_of(status: os.stat_result) -> FileState:
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode & 0o777)


def has_writer(fd: int) -> bool | None:
    """Whether a process has the file open for writing, or mapped. None on a file system that cannot tell.

    fd: opened for reading alone.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
