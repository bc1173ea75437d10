"""Folders that the job user can read and cannot change, because they belong to the agent."""

import os
import stat
import subprocess
from collections.abc import Collection

from ..jobs.user import JobUser, remove

_KEPT = 8


class NotSealed(Exception):
    """Another process of the job user has changed the folder. The text is one line."""


def seal(path: str, user: JobUser) -> None:
    """Gives a folder of the job user to the agent. Raises NotSealed if another process has changed the folder.

    Its parent belongs to the agent. Other jobs of the user may run and reach the folder through /proc. `chmod` follows
    a symbolic link in its arguments, so modes change only after every entry belongs to the agent.
    """
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        remove(path)
        raise NotSealed("another process replaced the folder of its files; try again")
    if not user.is_isolated:
        return
    subprocess.run(["chown", "-hR", "0:0", "--", path], check=True, stdin=subprocess.DEVNULL)
    strangers = ["find", path, "!", "-uid", "0", "-print", "-quit"]
    if subprocess.run(strangers, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout:
        remove(path)
        raise NotSealed("another process changed its files during the fetch or the setup; try again")
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
