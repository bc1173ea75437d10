"""A mount namespace for one process: the agent's folder is hidden, and the temporary folders are private."""

import ctypes
import os
import stat

_CLONE_NEWNS = 0x00020000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_TEMPORARY = ("/tmp", "/var/tmp")
_SHARED_MEMORY = "/dev/shm"


def show_only(visible: list[str], hidden: list[str], tmp: str | None, shm_bytes: int, uid: int, gid: int) -> bool:
    """Gives this process a mount namespace in which the user reaches each visible path.

    Covers every hidden folder, and every folder above a visible path that the user cannot enter. The visible paths
    appear again in the covers. tmp: folder that replaces /tmp and /var/tmp. shm_bytes: size of /dev/shm.
    Returns False, and changes nothing, if the kernel refuses a namespace. Raises OSError if a mount fails.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        return False
    _mount(libc, "none", "/", None, _REC | _PRIVATE)
    visible = sorted({os.path.realpath(path) for path in visible})
    opened = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in visible]
    temporary = [] if tmp is None else [folder for folder in _TEMPORARY if os.path.realpath(folder) == folder]
    covers = _outermost(
        [os.path.realpath(path) for path in hidden if os.path.isdir(path)]
        + [closed for path in visible if (closed := _closed_parent(path, uid, gid))],
        temporary,
    )
    private = os.open(tmp, os.O_PATH | os.O_CLOEXEC) if tmp is not None else -1
    for folder in covers:
        _mount(libc, "tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "size=4m,mode=0755")
    for folder in temporary:
        _mount(libc, f"/proc/self/fd/{private}", folder, None, _BIND)
    for path, fd in opened:
        if any(is_inside(path, folder) for folder in [*covers, *temporary]):
            _make_place(path, fd)
            _mount(libc, f"/proc/self/fd/{fd}", path, None, _BIND | _REC)
    for folder in covers:
        _mount(libc, "none", folder, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    if os.path.isdir(_SHARED_MEMORY):
        _mount(libc, "tmpfs", _SHARED_MEMORY, "tmpfs", _NOSUID | _NODEV, f"size={shm_bytes},mode=1777")
    for fd in [private, *(fd for _, fd in opened)]:
        if fd >= 0:
            os.close(fd)
    return True


def _make_place(path: str, fd: int) -> None:
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _closed_parent(path: str, uid: int, gid: int) -> str | None:
    """The first folder above `path` that the user cannot enter."""
    parent = "/"
    for part in path.split("/")[1:]:
        status = os.stat(parent)
        mode = status.st_mode
        can_enter = mode & (0o100 if status.st_uid == uid else 0o010 if status.st_gid == gid else 0o001)
        if not can_enter:
            return parent
        parent = os.path.join(parent, part)
    return None


def _outermost(folders: list[str], temporary: list[str]) -> list[str]:
    """The folders that no other folder contains. /tmp is replaced as a whole, so no folder in it needs a cover."""
    outermost: list[str] = []
    for folder in sorted(set(folders)):
        if not any(is_inside(folder, other) for other in [*outermost, *temporary]):
            outermost.append(folder)
    return outermost


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _mount(libc, source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    arguments = [text and os.fsencode(text) for text in (source, target, kind, options)]
    if libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}; use a Linux image that lets root mount")
