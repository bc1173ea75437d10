"""The start of one job process in its namespaces: as its user, with its limits, without the keys of the agent."""

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import socket
import struct
import sys

from .mounts import show_only

_SET_NO_NEW_PRIVS, _SET_CHILD_SUBREAPER = 38, 36
_KEYCTL, _JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1  # of a network interface
_IS_LINUX = sys.platform == "linux"


def start(order: dict) -> int:
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
            _set_limits(order["limits"], order["uid"] is not None)
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
    pages = order["limits"]["memory_bytes"] // resource.getpagesize()
    with contextlib.suppress(FileNotFoundError), open("/proc/sys/kernel/shmall", "w", encoding="ascii") as file:
        file.write(str(pages))  # a kernel without System V has no such file
    if not order["has_network"]:
        _raise_loopback()
    show_only(order)


def _raise_loopback() -> None:
    """JAX and libtpu of one host connect to themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack_from("H", found, 16)[0] | _IS_UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags))


def _set_limits(limits: dict, is_isolated: bool) -> None:
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


def _prctl(option: int, value: int) -> int:
    return ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
