"""The agent's log: JSON lines on stderr, and a copy in the bucket that outlives the VM."""

import json
import logging
import sys
import threading
import time
import traceback
from collections import deque
from datetime import UTC, datetime

from ..storage.objects import Bucket

_KEEP_LINES = 5_000
_SHIP_EVERY_S = 15.0
_PRINT_CHARS = 32 * 1024  # of an ASCII line: the reader of a startup script's output closes the pipe at 64 KiB


class LogShipper(logging.Handler):
    """Keeps the latest lines and writes them to one object, at most as often as Cloud Storage accepts a write."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=_KEEP_LINES)
        self._new = threading.Event()
        self._shipping = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        line = _format(record)
        self._lines.append(line)
        self._new.set()
        _print(line)

    def lines(self) -> list[str]:
        return list(self._lines)

    def restore(self, lines: list[str]) -> None:
        """Puts the lines from before a restart of the agent in front of the new lines."""
        self._lines.extendleft(reversed(lines[: _KEEP_LINES - len(self._lines)]))

    def start(self, bucket: Bucket, name: str) -> None:
        """Starts the thread that ships new lines."""
        threading.Thread(target=self._run, args=(bucket, name), name="log", daemon=True).start()

    def ship(self, bucket: Bucket, name: str) -> None:
        """Writes all kept lines to the object `name`. Prints an error instead of raising it."""
        with self._shipping:
            self._new.clear()
            try:
                bucket.overwrite(name, ("\n".join(self._lines) + "\n").encode(), "application/x-ndjson")
            except Exception as error:  # an error of the log must not stop the work; the next write has all lines
                _print(f"Failed to ship the log to gs://{bucket.name}/{name}: {error}")

    def _run(self, bucket: Bucket, name: str) -> None:
        while True:
            self._new.wait()
            self.ship(bucket, name)
            time.sleep(_SHIP_EVERY_S)


def set_up_logging() -> LogShipper:
    """Sends every log record of this process to one LogShipper."""
    shipper = LogShipper()
    logging.basicConfig(level=logging.INFO, handlers=[shipper], force=True)
    for noisy in ("jax", "google", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return shipper


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
