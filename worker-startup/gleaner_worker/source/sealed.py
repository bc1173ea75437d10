"""Folders that belong to the agent, and that the job user reads and cannot change."""

import os
import shutil
import subprocess

from ..jobs.user import JobUser

_KEPT = 8


def seal(path: str, user: JobUser) -> None:
    """Gives a folder of the job user to the agent. Links are not followed."""
    if user.is_isolated:
        subprocess.run(["chown", "-hR", "0:0", "--", path], check=True, stdin=subprocess.DEVNULL)
        subprocess.run(["chmod", "-R", "u+rwX,go+rX,go-w", "--", path], check=True, stdin=subprocess.DEVNULL)


def use(path: str) -> str:
    """Notes that the folder is in use now, and removes the folders beside it that were used longest ago."""
    os.utime(path)
    parent = os.path.dirname(path)
    with os.scandir(parent) as entries:
        folders = sorted(
            (entry.stat(follow_symlinks=False).st_mtime, entry.path)
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    for _, old in folders[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return path
