"""Copies of models on this machine's disk: each in a folder of its own, which is complete or missing."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from ..failures import Failure

_UNFINISHED = ".unfinished"
_SPARE_BYTES = 1 << 30  # kept free for logs, shards, and the compile cache
_POLL_S = 0.2


@dataclass(frozen=True)
class Copy:
    """A complete copy of a model."""

    folder: str
    is_kept: bool  # the copy is older than this request


def kept_copy(home: str, key: str, check: Callable[[], None], fill: Callable[[str], None]) -> Copy:
    """The copy named `key`, made by fill(folder) where it is missing.

    After an interruption, `fill` finds the files of the interrupted call. One process fills a copy at a time; the
    others wait, and call `check`, which may raise.
    """
    folder = os.path.join(home, "models", key)
    is_kept = os.path.isdir(folder)
    if not is_kept:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with _locked(folder, check):
            if not os.path.isdir(folder):
                unfinished = folder + _UNFINISHED
                os.makedirs(unfinished, exist_ok=True)
                fill(unfinished)
                os.rename(unfinished, folder)
    os.utime(folder)  # make_room removes the least recently used copy first
    return Copy(folder, is_kept)


def make_room(unfinished: str, size_bytes: int, model: str) -> None:
    """Removes the least recently used other copies until `size_bytes` fit; raises Failure when they never fit."""
    parent = os.path.dirname(unfinished)
    mine = {unfinished, unfinished.removesuffix(_UNFINISHED)}
    others = [entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
    others = sorted((path for path in others if path not in mine), key=os.path.getmtime)
    while (free := shutil.disk_usage(parent).free) < size_bytes + _SPARE_BYTES and others:
        _remove(others.pop(0))
    if free < size_bytes:
        raise Failure(
            "infrastructure",
            f"Failed to copy the model {model}: it needs {size_bytes / 1e9:.1f} GB, and the disk of {parent} has "
            f"{free / 1e9:.1f} GB free; the boot disk of a TPU VM has 100 GB: upload the model to a folder gs://… and "
            "set `model` to that address, because the weights of a bucket are not copied",
        )


def _remove(path: str) -> None:
    """Removes a complete or unfinished copy, unless a process fills it now."""
    with open(_lock_path(path), "w") as file:
        if _try_lock(file):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: str, check: Callable[[], None]) -> Iterator[None]:
    """The lock ends with the process, by an exit or by a crash."""
    with open(_lock_path(folder), "w") as file:
        while not _try_lock(file):
            check()
            time.sleep(_POLL_S)
        yield


def _lock_path(folder: str) -> str:
    return folder.removesuffix(_UNFINISHED) + ".lock"


def _try_lock(file: IO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
