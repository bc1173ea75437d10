"""Uploads the output of a process to the bucket, part by part, while the process runs."""

import logging
import threading
import time

from ..failures import Failure, LeaseLost
from ..storage.objects import Bucket
from ..storage.upload_content import BytesContent

log = logging.getLogger(__name__)

EVERY_S = 3.0  # between two parts
_PART_BYTES = 1 << 20
_MAX_WAITING = 16  # parts in memory while the bucket does not answer


class OutputParts:
    """Writes `FOLDER/000001.txt` and so on, each created once, in order. Memory and size have limits.

    bucket: its check ends the uploads, for example when the lease is lost. An upload never delays or stops the process.
    every_s: seconds between two parts, EVERY_S if absent. max_bytes: limit of the whole output.
    """

    def __init__(self, bucket: Bucket, folder: str, every_s: float | None = None, max_bytes: int = 100 << 20):
        self._bucket, self._folder = bucket, folder.rstrip("/") + "/"
        self._every_s = EVERY_S if every_s is None else every_s
        self._left_bytes, self._max_bytes = max_bytes, max_bytes
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._dropped = self._parts = 0
        self._is_slow = self._closing = self._ended = False
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Returns at once. Drops the bytes above the limits."""
        with self._changed:
            room = min(self._left_bytes, _MAX_WAITING * _PART_BYTES - len(self._waiting))
            accepted = data[: max(0, room)] if not self._dropped else b""
            if len(accepted) < len(data):
                self._is_slow = self._is_slow or len(accepted) < self._left_bytes and not self._dropped
                self._dropped += len(data) - len(accepted)
            self._waiting += accepted
            self._left_bytes -= len(accepted)
            if len(self._waiting) >= _PART_BYTES:
                self._changed.notify_all()

    def close(self, give_up_after_s: float = 600) -> None:
        """Uploads the rest. Returns when the last part is stored, or after `give_up_after_s`."""
        with self._changed:
            if not self._closing and self._dropped:
                self._waiting += self._last_line()
            self._closing = True
            self._changed.notify_all()
        self._thread.join(give_up_after_s)

    def _last_line(self) -> bytes:
        why = "the bucket was slower than the process" if self._is_slow else f"the limit is {self._max_bytes} bytes"
        return f"\n[gleaner] {self._dropped} bytes of output are left out here: {why}\n".encode()

    def _run(self) -> None:
        while (part := self._next()) is not None:
            try:
                self._store(part)
            except LeaseLost:
                return
            except Failure as error:
                log.warning("%s; the output of this part is lost", error.reason)

    def _next(self) -> bytes | None:
        """Waits for the next part: a full part, or the output of `every_s` seconds. Returns None at the end."""
        end = time.monotonic() + self._every_s
        with self._changed:
            while not self._closing and len(self._waiting) < _PART_BYTES:
                left = end - time.monotonic()
                if left <= 0 and self._waiting:
                    break
                self._changed.wait(left if left > 0 else self._every_s)
            if not self._waiting:
                return None
            part = bytes(self._waiting[:_PART_BYTES])
            del self._waiting[:_PART_BYTES]
            return part

    def _store(self, part: bytes) -> None:
        """An object of that name is this part, stored by a request whose answer was lost."""
        self._parts += 1
        name = f"{self._folder}{self._parts:06d}.txt"
        self._bucket.create(name, BytesContent(part), {}, "text/plain; charset=utf-8")
