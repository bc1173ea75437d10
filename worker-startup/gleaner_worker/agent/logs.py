"""The log of a host: the lines of its boot and of its agent, and a copy in the bucket that outlives the VM."""

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from datetime import UTC, datetime

from ..storage.objects import Bucket

_KEEP_LINES = 5_000
_MOST_LINES_ON_DISK = 50_000
_SHIP_EVERY_S = 15.0
_SHIP_GAP_S = 1.0  # Cloud Storage accepts one write a second of an object
_PRINT_CHARS = 32 * 1024  # of an ASCII line: the reader of a startup script's output closes the pipe at 64 KiB


class LogShipper(logging.Handler):
    """Keeps the latest lines and writes them to one object, at most as often as Cloud Storage accepts a write.

    path: the log of this host, with the lines of its boots and of earlier agents. Every new line is appended to it.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._lines: deque[str] = deque(_lines_of(path), maxlen=_KEEP_LINES)
        self._on_disk = len(self._lines)
        self._new = threading.Event()
        self._hurry = threading.Event()
        self._shipping = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        line = _format(record)
        self._lines.append(line)
        self._append(line)
        self._new.set()
        _print(line)

    def start(self, bucket: Bucket, name: str) -> None:
        """Starts the thread that ships new lines."""
        threading.Thread(target=self._run, args=(bucket, name), name="log", daemon=True).start()

    def ship_soon(self) -> None:
        """Ships the lines of now within a second: after the end of its work, a VM may be deleted at any time."""
        self._hurry.set()

    def ship(self, bucket: Bucket, name: str) -> None:
        """Writes all kept lines to the object `name`. Prints an error instead of raising it."""
        with self._shipping:
            self._new.clear()
            try:
                bucket.overwrite(name, ("\n".join(self._lines) + "\n").encode(), "application/x-ndjson")
            except Exception as error:  # an error of the log must not stop the work; the next write has all lines
                _print(f"Failed to ship the log to gs://{bucket.name}/{name}: {error}")

    def _append(self, line: str) -> None:
        """Appends to the log of this host, which shrinks to the kept lines at times. A full disk loses lines."""
        is_long = self._on_disk >= _MOST_LINES_ON_DISK
        try:
            with open(self._path, "w" if is_long else "a", encoding="utf-8", opener=_open_private) as file:
                file.writelines(f"{each}\n" for each in (self._lines if is_long else [line]))
            self._on_disk = len(self._lines) if is_long else self._on_disk + 1
        except OSError:
            pass

    def _run(self, bucket: Bucket, name: str) -> None:
        while True:
            self._new.wait()
            self._hurry.clear()
            self.ship(bucket, name)
            time.sleep(_SHIP_GAP_S)
            self._hurry.wait(_SHIP_EVERY_S - _SHIP_GAP_S)


def set_up_logging(home: str) -> LogShipper:
    """Sends every log record of this process to one LogShipper. home: the folder that has the log of this host."""
    shipper = LogShipper(os.path.join(home, "host.log"))
    logging.basicConfig(level=logging.INFO, handlers=[shipper], force=True)
    for noisy in ("jax", "google", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return shipper


def _lines_of(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()[-_KEEP_LINES:]
    except OSError:  # the first boot of this host
        return []


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _print(line: str) -> None:
    try:
        print(line[:_PRINT_CHARS], file=sys.stderr, flush=True)
    except (OSError, ValueError):  # no reader, for example during a shutdown; the work continues
        pass


def _format(record: logging.LogRecord) -> str:
    entry = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "severity": record.levelname,
        "message": record.getMessage(),
    }
    if record.exc_info:
        entry["traceback"] = "".join(traceback.format_exception(*record.exc_info))
    return json.dumps(entry)
