"""Uploads the output of a process to the bucket, part by part, while the process runs."""

import logging
import threading
import time

from ..failures import Failure, LeaseLost
from ..storage.objects import Bucket, Contradicts
from ..storage.upload_content import BytesContent

log = logging.getLogger(__name__)

EVERY_S = 3.0  # between two parts
_PART_BYTES = 1 << 20
_MAX_WAITING = 16 * _PART_BYTES  # in memory while the bucket does not answer
_MAX_HEAD_BYTES = 100 << 20
_LAST_BYTES = 1 << 20


class OutputParts:
    """Writes `FOLDER/000001.txt` and so on, each created once, in order. Memory and size have limits.

    Stores the first `max_bytes` bytes and always the last MiB, because a traceback comes last. A line between the two
    counts the bytes that are left out. bucket: its check ends the uploads, for example when the lease is lost.
    every_s: seconds between two parts, EVERY_S if absent.
    """

    def __init__(self, bucket: Bucket, folder: str, every_s: float | None = None, max_bytes: int = _MAX_HEAD_BYTES):
        self._bucket, self._folder = bucket, folder.rstrip("/") + "/"
        self._every_s = EVERY_S if every_s is None else every_s
        self._left_bytes, self._max_bytes = max_bytes, max_bytes
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._last = bytearray()  # the newest bytes after the head
        self._after_head = self._parts = 0
        self._given = self._stored = self._urgent = 0  # bytes of the head; those before `urgent` wait for no others
        self._closing = self._ended = False
        self._contradiction: Contradicts | None = None
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Waits while the bucket is 16 MiB behind: a process whose pipe is not read waits too, and loses nothing."""
        with self._changed:
            while len(self._waiting) >= _MAX_WAITING and not (self._closing or self._ended):
                self._changed.wait()
            self._add(data)

    def hurry(self, give_up_after_s: float) -> None:
        """Uploads what waits, and returns when it is stored, or after `give_up_after_s`."""
        with self._changed:
            self._urgent = given = self._given
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stored >= given or self._ended, give_up_after_s)

    def close(self, give_up_after_s: float = 600, end: bytes = b"") -> None:
        """Uploads the rest, and `end` after it. Returns when the last part is stored, or after `give_up_after_s`.

        Raises Contradicts where another writer stored a part.
        """
        with self._changed:
            if not self._closing:
                self._closing = True
                self._add(end)
                self._waiting += self._last_part()
            self._changed.notify_all()
        self._thread.join(give_up_after_s)
        if self._contradiction:
            raise self._contradiction

    def _add(self, data: bytes) -> None:
        head = data[: self._left_bytes]
        self._left_bytes -= len(head)
        self._given += len(head)
        self._waiting += head
        self._after_head += len(data) - len(head)
        self._last += data[len(head) :]
        if len(self._last) > 2 * _LAST_BYTES:
            del self._last[:-_LAST_BYTES]
        if len(self._waiting) >= _PART_BYTES:
            self._changed.notify_all()

    def _last_part(self) -> bytes:
        """The last bytes, which begin with a whole line where bytes before them are left out."""
        last = bytes(self._last[-_LAST_BYTES:])
        if len(last) == self._after_head:
            return last
        last = last[last.find(b"\n") + 1 :]
        left_out = self._after_head - len(last)
        kept = f"the output keeps its first {self._max_bytes} bytes and its last {len(last)}"
        return f"\n[gleaner] {left_out} bytes of output are left out here: {kept}\n".encode() + last

    def _run(self) -> None:
        try:
            while (part := self._next()) is not None:
                try:
                    self._store(part)
                except LeaseLost:
                    return
                except Contradicts as error:
                    self._contradiction = error
                    return
                except Failure as error:
                    log.warning("%s; the output of this part is lost", error.reason)
                with self._changed:
                    self._stored += len(part)
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _next(self) -> bytes | None:
        """Waits for the next part: a full part, or the output of `every_s` seconds. Returns None at the end."""
        end = time.monotonic() + self._every_s
        with self._changed:
            while not self._closing and len(self._waiting) < _PART_BYTES:
                left = end - time.monotonic()
                if self._waiting and (left <= 0 or self._stored < self._urgent):
                    break
                self._changed.wait(left if left > 0 else self._every_s)
            if not self._waiting:
                return None
            part = bytes(self._waiting[:_PART_BYTES])
            del self._waiting[:_PART_BYTES]
            self._changed.notify_all()
            return part

    def _store(self, part: bytes) -> None:
        """An object of that name is this part, stored by a request whose answer was lost."""
        self._parts += 1
        name = f"{self._folder}{self._parts:06d}.txt"
        self._bucket.create(name, BytesContent(part), {}, "text/plain; charset=utf-8")
