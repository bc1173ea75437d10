"""Folders that jobs can read and cannot change, because they belong to the agent."""

import os
import subprocess
from collections.abc import Collection

from ..jobs.user import JobUser, remove

_KEPT = 8


def seal(path: str, user: JobUser) -> None:
    """Gives a folder of the job user, whose processes have all ended, to the agent. Its parent belongs to the agent.

    `chmod` follows a symbolic link in its arguments, so modes change only after every entry belongs to the agent.
    """
    if not user.is_isolated:
        return
    subprocess.run(["chown", "-hR", "0:0", "--", path], check=True, stdin=subprocess.DEVNULL)
    subprocess.run(["chmod", "-R", "u+rwX,go+rX,go-w,ug-s", "--", path], check=True, stdin=subprocess.DEVNULL)


def use(path: str) -> str:
    """Marks the folder as used now, and returns its path."""
    os.utime(path)
    return path


def trim(parent: str, held: Collection[str] = ()) -> None:
    """Keeps the folders in `held` and the 8 folders in `parent` that were used last. Removes the other folders."""
    if not os.path.isdir(parent):
        return
    with os.scandir(parent) as entries:
        folders = sorted(
            (entry.stat(follow_symlinks=False).st_mtime, entry.path)
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    for _, old in folders[:-_KEPT]:
        if old not in held:
            remove(old)
