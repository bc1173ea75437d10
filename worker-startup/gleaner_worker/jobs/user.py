"""The users that jobs run as: a new numeric uid for each attempt, kept away from the agent's files and credentials."""

import fcntl
import functools
import glob
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

# No system, person or container of a Linux distribution has a uid of this range.
FIRST_UID, _LAST_UID = 1_900_000_000, 2_100_000_000
_CHIPS_GID = FIRST_UID - 1  # the group that opens the chips
_NEXT_UID = "/run/gleaner-next-uid"  # in memory, so a count lasts until the next boot
# Link-local addresses: the metadata server is 169.254.169.254. Its port 53 is the DNS server of a VM.
_METADATA = (("iptables", "169.254.0.0/16"), ("ip6tables", "fd20:ce::254/128"))
_OTHERS = "1-4294967294"  # every user except root
_CHIPS = ("/dev/accel*", "/dev/vfio/*")
_LOCAL = "set GLEANER_JOB_ISOLATION=none on the local cloud"
# The child of `unshare` is process 1 of its namespace: all other processes of the namespace end with it.
NAMESPACES = ("unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
NO_NETWORK = "--net"


class NotIsolated(Exception):
    """Jobs cannot be isolated from the agent on this machine. The text is one line that says what to do."""


@dataclass(frozen=True)
class JobUser:
    """The user and group of the processes of one attempt."""

    uid: int
    gid: int
    is_isolated: bool = True  # False: the user of the agent itself, on the local cloud alone
    home: str | None = None  # the agent's folder, hidden from the user
    has_network: bool = True  # False: the processes reach no address but their own loopback
    groups: tuple[int, ...] = ()


def find_job_user(env: Mapping[str, str] = os.environ, *, has_network: bool = True) -> JobUser:
    """Returns a user that no process of this boot has had. On a VM, first blocks the metadata server for all users.

    Raises NotIsolated if jobs could reach the agent's files or credentials.
    """
    isolation, is_local = env.get("GLEANER_JOB_ISOLATION") or "user", bool(env.get("GCE_METADATA_HOST"))
    home = os.path.realpath(env.get("GLEANER_HOME") or "/opt/gleaner")
    if isolation == "none":
        if not is_local:
            raise NotIsolated(
                "Failed to isolate jobs: GLEANER_JOB_ISOLATION=none is for the local cloud alone; remove it"
            )
        return JobUser(os.geteuid(), os.getegid(), is_isolated=False, home=home)
    if isolation != "user":
        raise NotIsolated(f"Failed to isolate jobs: GLEANER_JOB_ISOLATION is '{isolation}'; set user or none")
    if os.geteuid() != 0:
        raise NotIsolated(f"Failed to isolate jobs: the agent runs without root; start the agent as root, or {_LOCAL}")
    _require_namespaces()
    if is_local:
        uid = _next_uid()
        return JobUser(uid, uid, home=home, has_network=has_network)
    block_metadata()
    _grant_chips()
    uid = _next_uid()
    return JobUser(uid, uid, home=home, has_network=has_network, groups=(_CHIPS_GID,))


def make_folder(path: str, user: JobUser) -> str:
    """Makes a new folder that only the user can enter. Its parents belong to the agent, and every user can enter them.

    Raises FileExistsError.
    """
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    os.mkdir(path, 0o700)
    if user.is_isolated:
        os.chown(path, user.uid, user.gid)
    return path


def remove(*paths: str) -> None:
    """Deletes files and trees of any depth. `rm` follows no symbolic link."""
    subprocess.run(["rm", "-rf", "--", *paths], stdin=subprocess.DEVNULL, check=False)


def block_metadata() -> None:
    """Rejects connections to the metadata server, which gives tokens of the worker's account, of all users but root.

    The DNS server of a VM may have the same address, so port 53 stays open. An existing rule is kept. Raises
    NotIsolated.
    """
    for program, address in _METADATA:
        if program == "ip6tables" and not has_ipv6():
            continue
        rule = ["OUTPUT", "-d", address, "-p", "tcp", "!", "--dport", "53"]
        rule += ["-m", "owner", "--uid-owner", _OTHERS, "-j", "REJECT"]
        if call(program, "-w", "10", "-C", *rule) is not None and (problem := call(program, "-w", "10", "-I", *rule)):
            raise NotIsolated(f"Failed to block the metadata server for jobs: {problem}; install {program} on the VM")


@functools.cache
def _require_namespaces() -> None:
    """Raises NotIsolated on a host that refuses a namespace."""
    if problem := call(*NAMESPACES, NO_NETWORK, "true"):
        raise NotIsolated(
            f"Failed to isolate jobs: {problem}; use a Linux image whose root makes namespaces, or {_LOCAL}"
        )


def _next_uid() -> int:
    """Counts up in a file that all agents of this machine share."""
    fd = os.open(_NEXT_UID, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        uid = int(file.read() or FIRST_UID)
        if uid > _LAST_UID:
            raise NotIsolated(
                "Failed to isolate jobs: all uids for jobs have been used since the boot; restart this machine"
            )
        file.seek(0)
        file.write(f"{uid + 1}\n")
    return uid


def _grant_chips() -> None:
    """Lets the group of jobs open the chips, on an image that leaves them to root."""
    for path in (path for pattern in _CHIPS for path in glob.glob(pattern)):
        mode = os.stat(path).st_mode
        if mode & 0o006 != 0o006:
            os.chown(path, -1, _CHIPS_GID)
            os.chmod(path, (mode & 0o7777) | 0o060)


def call(program: str, *arguments: str) -> str | None:
    """Returns the problem, or None."""
    try:
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program}: {type(error).__name__}: {error}"
    if done.returncode == 0:
        return None
    return f"{program} exited with {done.returncode}: {' '.join(done.stderr.split())[:300]}"


def has_ipv6() -> bool:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            return bool(file.read(1))
    except OSError:
        return False
