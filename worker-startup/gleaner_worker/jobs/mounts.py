"""The files that one attempt sees: all of the machine is read-only, the agent's folder is hidden, and the temporary
folders are private. The process that calls has a mount namespace of its own already."""

import ctypes
import os
import stat

_RDONLY, _NOSUID, _NODEV, _BIND, _REC = 1, 2, 4, 4096, 16384
_TEMPORARY = ("/tmp", "/var/tmp")
_SHARED_MEMORY = "/dev/shm"
# A folder in memory is below this one, which every Linux has and no program needs.
RAMFS_PARENT = "/mnt"
_MAX_RAMFS_BYTES = 32 << 30
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000  # the number is that of every architecture


def show_only(order: dict) -> None:
    """Lets the user of the order reach each visible path, and change the folder `own` and the temporary folders alone.

    Covers every hidden folder, and every folder above a visible path that the user cannot enter. The visible paths
    appear again in the covers. tmp: folder that replaces /tmp and /var/tmp. ramfs: path of a folder in memory.
    memory_bytes: size of /dev/shm, and at most twice the size of ramfs. Raises OSError if a mount fails.
    """
    own, memory_bytes = os.path.realpath(order["own"]), order["limits"]["memory_bytes"]
    tmp, ramfs, uid, gid = (order[name] for name in ("tmp", "ramfs", "uid", "gid"))
    shown = sorted({own, *(os.path.realpath(path) for path in order["visible"])})
    opened = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in shown]
    private = os.open(tmp, os.O_PATH | os.O_CLOEXEC)
    temporary = [folder for folder in _TEMPORARY if os.path.realpath(folder) == folder]
    covers = _outermost(
        [os.path.realpath(path) for path in order["hidden"] if os.path.isdir(path)]
        + [closed for path in shown if (closed := _closed_parent(path, uid, gid))]
        + ([RAMFS_PARENT] if ramfs else []),
        temporary,
    )
    for folder in covers:
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "size=4m,mode=0755")
    for folder in temporary:
        _mount(f"/proc/self/fd/{private}", folder, None, _BIND)
    for path, fd in opened:
        if path == own or any(is_inside(path, folder) for folder in [*covers, *temporary]):
            _make_place(path, fd)
            _mount(f"/proc/self/fd/{fd}", path, None, _BIND | _REC)
    writable = ["/proc", own, *temporary]
    if ramfs is not None:
        os.makedirs(ramfs, mode=0o755, exist_ok=True)
        size = min(_MAX_RAMFS_BYTES, memory_bytes // 2)
        _mount("tmpfs", ramfs, "tmpfs", _NOSUID | _NODEV, f"size={size},mode=0700,uid={uid},gid={gid}")
        writable.append(ramfs)
    if os.path.isdir(_SHARED_MEMORY):
        _mount("tmpfs", _SHARED_MEMORY, "tmpfs", _NOSUID | _NODEV, f"size={memory_bytes},mode=1777")
        writable.append(_SHARED_MEMORY)
    # A folder that every user may change, such as /run/lock, would carry files from one attempt to the next.
    _set_attributes("/", _AT_RECURSIVE, add=_RDONLY | _NOSUID)
    for path in writable:
        _set_attributes(path, 0, clear=_RDONLY)
    for fd in [private, *(fd for _, fd in opened)]:
        os.close(fd)


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


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [text and os.fsencode(text) for text in (source, target, kind, options)]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) != 0:
        raise _refusal("mount", target)


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _set_attributes(path: str, flags: int, add: int = 0, clear: int = 0) -> None:
    attributes = _Attributes(add, clear, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = (ctypes.c_long(_SYS_MOUNT_SETATTR), ctypes.c_long(_AT_FDCWD))
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    if libc.syscall(*numbers, os.fsencode(path), ctypes.c_long(flags), ctypes.byref(attributes), size) != 0:
        raise _refusal("mount_setattr", path)


def _refusal(call: str, path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call} {path}: {os.strerror(number)}; use an image with Linux 5.12 that lets root mount")
