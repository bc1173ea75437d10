"""The user that jobs run as: a numeric uid without rights, kept away from the agent's files and credentials."""

import glob
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_UID = 61_000
# A smaller uid may belong to a service or a person of the VM image.
_MIN_UID, _MAX_UID = 10_000, 2_000_000_000
# Link-local addresses: the metadata server is 169.254.169.254. Its port 53 is the DNS server of a VM.
_METADATA = (("iptables", "169.254.0.0/16"), ("ip6tables", "fd20:ce::254/128"))
_CHIPS = ("/dev/accel*", "/dev/vfio/*")
_ADVICE = "start the agent as root, or set GLEANER_JOB_ISOLATION=none on the local cloud"


class NotIsolated(Exception):
    """Jobs cannot be isolated from the agent on this machine. The text is one line that says what to do."""


@dataclass(frozen=True)
class JobUser:
    """The user and group of job processes."""

    uid: int
    gid: int
    is_isolated: bool = True  # False: the user of the agent itself, on the local cloud alone
    home: str | None = None  # the agent's folder, hidden from the user


def find_job_user(env: Mapping[str, str] = os.environ) -> JobUser:
    """Returns the job user of this host. On a VM, first blocks the metadata server for this user.

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
        raise NotIsolated(f"Failed to isolate jobs: the agent runs without root; {_ADVICE}")
    uid = _parse_uid(env.get("GLEANER_JOB_UID") or str(DEFAULT_UID))
    if not is_local:
        block_metadata(uid)
        _grant_chips(uid)
    return JobUser(uid, uid, home=home)


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


def block_metadata(uid: int) -> None:
    """Rejects connections of the user to the metadata server, which gives tokens of the worker's account.

    The DNS server of a VM may have the same address, so port 53 stays open. An existing rule is kept. Raises
    NotIsolated.
    """
    for program, address in _METADATA:
        if program == "ip6tables" and not (shutil.which(program) and _has_ipv6()):
            continue
        rule = ["OUTPUT", "-d", address, "-p", "tcp", "!", "--dport", "53"]
        rule += ["-m", "owner", "--uid-owner", str(uid), "-j", "REJECT"]
        if _call(program, ["-C", *rule]) is not None and (problem := _call(program, ["-I", *rule])) is not None:
            raise NotIsolated(f"Failed to block the metadata server for jobs: {problem}; install {program} on the VM")


def _grant_chips(gid: int) -> None:
    """Lets the group of the user open the chips, on an image that leaves them to root."""
    for path in (path for pattern in _CHIPS for path in glob.glob(pattern)):
        mode = os.stat(path).st_mode
        if mode & 0o006 != 0o006:
            os.chown(path, -1, gid)
            os.chmod(path, (mode & 0o7777) | 0o060)


def _call(program: str, arguments: list[str]) -> str | None:
    """Returns the problem, or None. `-w` waits while another process changes rules."""
    try:
        done = subprocess.run(
            [program, "-w", "10", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program}: {type(error).__name__}: {error}"
    if done.returncode == 0:
        return None
    return f"{program} exited with {done.returncode}: {' '.join(done.stderr.split())[:300]}"


def _has_ipv6() -> bool:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            return bool(file.read(1))
    except OSError:
        return False


def _parse_uid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and _MIN_UID <= int(text) <= _MAX_UID):
        raise NotIsolated(
            f"Failed to isolate jobs: GLEANER_JOB_UID is '{text}'; set a number from {_MIN_UID} to {_MAX_UID}"
        )
    return int(text)
