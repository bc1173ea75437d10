"""The artifacts of an attempt: each file is stored once it has settled, and again where it changes after that."""

import os
import threading
import time
from collections.abc import Iterator

from ..failures import Failure, LeaseLost
from ..storage.objects import Bucket, Contradicts
from ..storage.untrusted_files import open_untrusted, walk
from ..storage.upload_content import FileContent
from .checkpoint.folder import FileState, has_writer, state_of

_MAX_ARTIFACTS = 10_000
_MAX_ARTIFACT_BYTES = 200 << 30
_MAX_DEPTH = 32
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
                names = set()
                for name, entry, fd in self._walk():
                    names.add(name)
                    self._store_settled(name, entry, fd)
                self._seen = {name: seen for name, seen in self._seen.items() if name in names}
            except Contradicts as error:
                self._contradiction = error
                return
            except LeaseLost:
                return
            except (ValueError, OSError, Failure):  # the end names what is left out
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
        problems: list[str] = []
        try:
            there = {name for name, _, _ in self._walk()}
            self._stored = {name: state for name, state in self._stored.items() if name in there}
            self._left_bytes = _MAX_ARTIFACT_BYTES - sum(state.size for state in self._stored.values())
            for name, entry, fd in self._walk():
                self._bucket.check()
                try:
                    if len(self._stored.keys() - {name}) + len(problems) >= _MAX_ARTIFACTS:
                        raise OverflowError(f"more than {_MAX_ARTIFACTS} files")
                    self._store(name, entry, fd, is_settled=True)
                except OverflowError as error:
                    problems.append(f"{name!r} and the files after it: {error}")
                    break
                except (ValueError, OSError) as error:
                    problems.append(f"{name!r}: {error}")
                except Contradicts:
                    raise
                except Failure as error:
                    problems.append(f"{name!r}: {error.reason}")
        except (ValueError, OSError) as error:
            problems.append(str(error))
        except Contradicts:
            raise
        except Failure as error:
            problems.append(f"the other files: {error.reason}")
        return len(self._stored), problems

    def abandon(self) -> None:
        self._ended.set()

    def _walk(self) -> Iterator[tuple[str, str, int]]:
        return walk(self._path, _MAX_DEPTH)

    def _store_settled(self, name: str, entry: str, fd: int) -> None:
        try:
            if not self._ended.is_set() and len(self._stored) < _MAX_ARTIFACTS:
                self._store(name, entry, fd, is_settled=False)
        except (OverflowError, ValueError, OSError):  # the end names it
            pass

    def _store(self, name: str, entry: str, fd: int, is_settled: bool) -> None:
        if not name.isprintable() or len(self._folder) + len(name.encode("utf-8", "replace")) > 1000:
            raise ValueError("its name is too long, or has unprintable characters")
        with open_untrusted(entry, self._uid, fd) as file:
            state = state_of(os.fstat(file.fileno()))
            number = self._numbers.get(name, 0) + 1
            if state == self._stored.get(name) or not (
                is_settled or self._has_settled(name, state, number, file.fileno())
            ):
                return
            if state.size > self._left_bytes:
                raise OverflowError(f"more than {_MAX_ARTIFACT_BYTES} bytes")

            def check() -> None:
                self._bucket.check()
                if state_of(os.fstat(file.fileno())) != state:
                    raise Failure("infrastructure", "it changed while it was stored")

            place = "artifacts" if number == 1 else f"artifacts_{number}"
            content = FileContent(file)
            check()
            # The object may exist although its upload fails, so the next upload has another name.
            self._numbers[name] = number
            bucket = self._bucket.checked(check)
            bucket.create(f"{self._folder}{place}/{name}", content, {}, "application/octet-stream")
            self._stored[name], self._left_bytes = state, self._left_bytes - state.size

    def _has_settled(self, name: str, state: FileState, number: int, fd: int) -> bool:
        now = time.monotonic()
        seen, since = self._seen.get(name, (None, now))
        if seen != state:
            self._seen[name] = state, now
            return False
        return now - since >= _SETTLED_S * 2 ** (number - 1) and has_writer(fd) is not True


def note_left_out(problems: list[str]) -> bytes:
    """Lines for the end of the output, which name the artifacts that were left out."""
    more = len(problems) - _MAX_NAMED
    lines = problems[:_MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
    return "".join(f"[gleaner] artifact left out: {line}\n" for line in lines).encode("utf-8", "replace")
