"""Writes on this worker's own disk, and the failure of a full disk."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from ..failures import Failure


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns "no space left" while `path` is written into a Failure that states the free bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(os.path.dirname(path)).free
        raise Failure(
            "infrastructure",
            f"Failed to write {path}: the disk is full ({free} bytes free); free some, or use a smaller shard_size_gb",
        ) from error


def empty_folder(path: str) -> str:
    """Makes `path` an empty folder and returns it."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path
