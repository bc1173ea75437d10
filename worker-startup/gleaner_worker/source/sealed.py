"""Folders that belong to the agent, and that the job user reads and cannot change."""

import os
import stat
import subprocess
from collections.abc import Collection

from ..jobs.user import JobUser

_KEPT = 8


class NotSealed(Exception):
    """Another process of the job user has changed the folder. The text is one line."""


def seal(path: str, user: JobUser) -> None:
    """Gives a folder of the job user to the agent. Raises NotSealed for a folder that others still change.

    Its parent belongs to the agent. Other jobs of the user may run: they reach the folder through /proc. `chmod`
    follows a link that it is told to change, so only a folder whose every entry belongs to the agent gets new modes.
    """
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        remove(path)
        raise NotSealed("another process put something in the place of its files")
    if not user.is_isolated:
        return
    subprocess.run(["chown", "-hR", "0:0", "--", path], check=True, stdin=subprocess.DEVNULL)
    strangers = ["find", path, "!", "-uid", "0", "-print", "-quit"]
    if subprocess.run(strangers, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout:
        remove(path)
        raise NotSealed("another process changed its files during the fetch or the setup")
    subprocess.run(["chmod", "-R", "u+rwX,go+rX,go-w,ug-s", "--", path], check=True, stdin=subprocess.DEVNULL)


def remove(*paths: str) -> None:
    """`rm` follows no link, and a folder of any depth is no problem for it."""
    subprocess.run(["rm", "-rf", "--", *paths], stdin=subprocess.DEVNULL, check=False)


def use(path: str) -> str:
    """Notes that the folder is in use now."""
    os.utime(path)
    return path


def trim(parent: str, held: Collection[str] = ()) -> None:
    """Removes the folders in `parent` that were used longest ago. A folder of work in hand stays."""
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
