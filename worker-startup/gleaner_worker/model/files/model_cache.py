"""Copies of models on this machine's disk: each in a folder of its own, which is complete or missing."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping

from ...failures import Failure
from .weight_files import BucketFile

_UNFINISHED = ".unfinished"
_SPARE_BYTES = 1 << 30  # kept free for logs, shards, and the compile cache
_POLL_S = 0.2


def kept_copy(home: str, key: str, check: Callable[[], None], fill: Callable[[str], None]) -> tuple[str, bool]:
    """The folder of the copy named `key`, made by fill(folder) where it is missing; whether it was there before.

    After an interruption, `fill` finds the files of the interrupted call. One process fills a copy at a time; the
    others wait, and call `check`, which may raise.
    """
    folder = os.path.join(home, "models", key)
    is_kept = os.path.isdir(folder)
    if not is_kept:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with open(f"{folder}.lock", "w") as lock:  # the lock ends with the process, by an exit or by a crash
            while not _lock(lock.fileno()):
                check()
                time.sleep(_POLL_S)
            if not os.path.isdir(folder):
                os.makedirs(folder + _UNFINISHED, exist_ok=True)
                fill(folder + _UNFINISHED)
                os.rename(folder + _UNFINISHED, folder)
    os.utime(folder)  # make_room removes the least recently used copy first
    return folder, is_kept


def make_room(unfinished: str, size_bytes: int, model: str, in_use: Collection[str] = ()) -> None:
    """Removes the least recently used other copies, but none `in_use`, until `size_bytes` fit; raises Failure when they
    never fit."""
    parent = os.path.dirname(unfinished)
    needed = {os.path.abspath(folder) for folder in (unfinished, *in_use)}
    others = [
        entry.path for entry in os.scandir(parent) if entry.is_dir() and os.path.abspath(entry.path) not in needed
    ]
    others.sort(key=os.path.getmtime)
    while (free := shutil.disk_usage(parent).free) < size_bytes + _SPARE_BYTES and others:
        _remove(others.pop(0))
    if free < size_bytes:
        raise Failure(
            "infrastructure",
            f"Failed to copy {model}: it needs {size_bytes / 1e9:.1f} GB, and the disk of {parent} has "
            f"{free / 1e9:.1f} GB free; the boot disk of a TPU VM has 100 GB: upload it to a folder gs://… and name "
            "that address in its place, because the weights of a bucket are not copied",
        )


def _remove(path: str) -> None:
    """Removes a complete or unfinished copy, unless another process fills it now."""
    with open(f"{path.removesuffix(_UNFINISHED)}.lock", "w") as lock:
        if _lock(lock.fileno()):
            shutil.rmtree(path, ignore_errors=True)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def kept_objects(home: str, files: Mapping[str, BucketFile], check: Callable[[], None]) -> tuple[str, bool]:
    """`kept_copy` of objects of a bucket. A changed object makes a new folder: a copy never mixes two states."""

    def fill(folder: str) -> None:
        for name, file in files.items():
            file.copy_to(folder, name)

    lines = "\n".join(f"{file.address} {file.info.generation}" for file in files.values())
    return kept_copy(home, "gs--" + hashlib.sha256(lines.encode()).hexdigest()[:32], check, fill)
