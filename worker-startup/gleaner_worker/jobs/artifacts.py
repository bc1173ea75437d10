"""The artifacts of an attempt: each file is stored once it has settled, and again where it changes after that."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from ..failures import Failure, LeaseLost
from ..storage.objects import Bucket, Contradicts
from ..storage.untrusted_files import open_untrusted
from ..storage.upload_content import FileContent
from .checkpoint.folder import FileState, Scan, TooMany, has_writer, opened_parent, scan, state_of

_MAX_ARTIFACTS = 10_000
_MAX_ARTIFACT_BYTES = 200 << 30
_MAX_NAMED = 20  # files in the note about those left out
_LOOK_S = 10.0
_SETTLED_S = 30.0  # without a change, until a file is stored; twice as long after each version of it


class Artifacts(threading.Thread):
    """Stores version 1 of a file below `artifacts/`, and version N of a changed one below `artifacts_N/`: no token may
    replace an object. bucket: its check ends the uploads."""

    def __init__(self, path: str, uid: int, bucket: Bucket, folder: str):
        super().__init__(name="artifacts", daemon=True)
        self._path, self._uid, self._bucket, self._folder = path, uid, bucket, folder
        self._seen: dict[str, tuple[FileState, float]] = {}  # since when a file is as it is
        self._stored: dict[str, FileState] = {}
        self._numbers: dict[str, int] = {}  # of the last version, also of one whose upload failed
        self._left_bytes = _MAX_ARTIFACT_BYTES  # first of the uploads while the job runs, then of what the end finds
        self._contradiction: Contradicts | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                for name, state in self._settled():
                    if not self._ended.is_set() and len(self._stored) < _MAX_ARTIFACTS:
                        with contextlib.suppress(OverflowError, ValueError, OSError):  # the end names it
                            self._store(name, state, is_final=False)
            except Contradicts as error:
                self._contradiction = error
                return
            except LeaseLost:
                return
            except (OSError, Failure):  # the end names what is left out
                pass

    def end(self) -> tuple[int, list[str]]:
        """Stores what is not stored yet. Returns the count of files, and a line for each one left out.

        A Failure of the bucket's check, for example at the deadline of a preemption, leaves out the other files. Raises
        Contradicts where another writer stored an artifact of that name.
        """
        self.abandon()
        self.join()
        if self._contradiction:
            raise self._contradiction
        try:
            found = self._scan()
        except OSError as error:
            return len(self._stored), [str(error)]
        self._stored = {name: state for name, state in self._stored.items() if name in found.files}
        self._left_bytes = _MAX_ARTIFACT_BYTES - sum(state.size for state in self._stored.values())
        problems: list[str] = []
        for name in [*found.files, *found.links, *found.left_out]:
            try:
                if len(self._stored) - (name in self._stored) + len(problems) >= _MAX_ARTIFACTS:
                    raise OverflowError(f"more than {_MAX_ARTIFACTS} files")
                if (state := found.files.get(name)) is None:
                    raise ValueError(found.left_out.get(name, "it is a link"))
                self._store(name, state, is_final=True)
            except OverflowError as error:
                problems.append(f"{name!r} and the files after it: {error}")
                break
            except Contradicts:
                raise
            except (ValueError, OSError, Failure) as error:
                problems.append(f"{name!r}: {error}")
        return len(self._stored), problems

    def abandon(self) -> None:
        self._ended.set()

    def _scan(self) -> Scan:
        """What is there; some of it, if that is far over the limit of files. Raises OSError."""
        try:
            found = scan(self._path, self._uid, "", 10 * _MAX_ARTIFACTS)
        except TooMany as error:
            return error.found
        if found is None:
            raise FileNotFoundError(f"{self._path} has changed")
        return found

    def _settled(self) -> Iterator[tuple[str, FileState]]:
        files, now = self._scan().files, time.monotonic()
        since = {name: at for name, (state, at) in self._seen.items() if files.get(name) == state}
        self._seen = {name: (state, since.get(name, now)) for name, state in files.items()}
        for name, (state, at) in self._seen.items():
            if now - at >= _SETTLED_S * 2 ** self._numbers.get(name, 0):
                yield name, state

    def _store(self, name: str, state: FileState, is_final: bool) -> None:
        if state == self._stored.get(name):
            return
        if not name.isprintable() or len(self._folder) + len(name.encode()) > 1000:
            raise ValueError("its name is too long, or has unprintable characters")
        if state.size > self._left_bytes:
            raise OverflowError(f"more than {_MAX_ARTIFACT_BYTES} bytes")
        with opened_parent(self._path, name) as (fd, entry), open_untrusted(entry, self._uid, fd) as file:

            def check() -> None:
                self._bucket.check()
                if state_of(os.fstat(file.fileno())) != state:
                    raise Failure("infrastructure", "it changed while it was stored")

            check()
            if not is_final and has_writer(file.fileno()):
                return
            content = FileContent(file)
            check()
            # The object may exist although its upload fails, so the next upload has another name.
            number = self._numbers[name] = self._numbers.get(name, 0) + 1
            place = "artifacts" if number == 1 else f"artifacts_{number}"
            bucket = self._bucket.checked(check)
            bucket.create(f"{self._folder}{place}/{name}", content, {}, "application/octet-stream")
            self._stored[name], self._left_bytes = state, self._left_bytes - state.size


def note_left_out(problems: list[str]) -> bytes:
    """Lines for the end of the output, which name the artifacts that were left out."""
    more = len(problems) - _MAX_NAMED
    lines = problems[:_MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
    return "".join(f"[gleaner] artifact left out: {line}\n" for line in lines).encode("utf-8", "replace")
