"""Files that a job leaves. The job is not trusted: links, pipes, devices and files of other users are refused."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

_MAX_REPORT_BYTES = 100_000


@contextmanager
def open_untrusted(path: str, uid: int, folder_fd: int | None = None) -> Iterator[BinaryIO]:
    """Opens a regular file of the user. Raises FileNotFoundError without one, ValueError for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"it is not a regular file ({error.strerror})") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
        os.close(fd)
        is_regular = stat.S_ISREG(status.st_mode)
        raise ValueError("it belongs to another user" if is_regular else "it is not a regular file")
    with os.fdopen(fd, "rb") as file:
        yield file


def read_report(path: str, uid: int) -> dict:
    """The `cause` and `error` that run_job.py reports of a failure. Empty if the report is missing or invalid."""
    try:
        with open_untrusted(path, uid) as file:
            report = json.loads(file.read(_MAX_REPORT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(report, dict) or not isinstance(report.get("error"), str):
        return {}
    return report if report.get("cause") in ("exit", "memory", "result", "setup", "tpu", "machine") else {}
