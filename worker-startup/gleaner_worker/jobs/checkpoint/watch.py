"""Stores versions of the checkpoint folder while the job runs. A version is a quiet moment of the whole folder, or the
moment that the program names."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from ...failures import Failure, LeaseLost
from ...storage.objects import Bucket
from ...storage.untrusted_files import open_untrusted
from .folder import Scan, TooMany, scan
from .manifest import Manifest
from .restore import Restored
from .store import Cut, Known, Spoiled

log = logging.getLogger(__name__)

SAVE = ".save"  # the program names a moment by this file, whose text is a label
_MAX_LABEL_BYTES = 200
_LOOK_S = 0.2  # between two looks for SAVE
_SCAN_S = 2.0  # between two scans that see the same folder
_UNSURE_S = 5.0  # the same on a file system that does not tell who writes
# A process that dies in the middle of a save leaves a quiet folder. A cut counts if the process lived on for this long.
_ALIVE_S = 1.0
_RESTLESS_S = 120.0  # without a quiet moment, until the output says so
_REPORT_S = 5.0  # between two tries to report a version
_MAX_BYTES_PER_HOUR = 200e9
_SPOILED = 3  # versions in a row, until the output says so
_FOREVER_MS = 7 * 86_400_000


@dataclass
class _Moment:
    """A state of the folder and the time in which it was so."""

    scan: Scan
    label: str | None
    from_ms: int
    until_ms: int
    since: float  # of from_ms, by the monotonic clock


@dataclass
class _Upload:
    """A cut on its way into the bucket."""

    moment: _Moment
    number: int
    cut: Cut
    at: float
    done: Future[tuple[Manifest, str]]


class Watch(threading.Thread):
    """The watch of one attempt on one host.

    copies: folder that the job cannot see. order: `max_gb`, `max_files` and `every_s`, the least seconds between two
    versions. prefix: of the objects of this host. processes: of the attempt.
    report: sends a stored version, or a problem of the checkpoint, to worker-api; raises OSError and LeaseLost.
    note: writes a line into the output of the job. stop: set while the process is to end.
    """

    def __init__(
        self,
        root: str,
        copies: str,
        uid: int,
        bucket: Bucket,
        order: Mapping,
        prefix: str,
        processes: int,
        restored: Restored,
        report: Callable[[dict | None, str | None], None],
        note: Callable[[str], None],
        stop: threading.Event,
    ):
        super().__init__(name="checkpoint", daemon=True)
        self._root, self._copies, self._uid, self._bucket = root, copies, uid, bucket
        self._order, self._prefix, self._processes = order, prefix, processes
        self._report, self._note, self._term = report, note, stop
        self._known = self._restored = restored.known
        self._foreign = restored.foreign
        self._pool = ThreadPoolExecutor(1, "checkpoint-upload")
        self._ended = threading.Event()
        self._died_at: float | None = None
        self._seen: _Moment | None = None
        self._stored: tuple[_Moment, dict] | None = None  # the last version, and what worker-api hears of it
        self._told_ms = -1  # until_ms of the last report of it
        self._upload: _Upload | None = None
        self._is_named = False  # the program names its moments
        self._number = self._spoiled = 0
        self._next_cut = self._next_report = 0.0
        self._quiet_at = time.monotonic()
        self._noted: set[str] = set()

    @property
    def is_used(self) -> bool:
        """Whether the job has saved something."""
        return bool(self._stored or self._known.manifest.files or (self._seen and self._seen.scan.files))

    def process_began(self) -> None:
        self._died_at = None

    def process_died(self) -> None:
        self._died_at = time.monotonic()

    def run(self) -> None:
        scan_at = 0.0
        while not self._ended.wait(_LOOK_S):
            try:
                self._settle()
                label = self._label()
                if label is not None and self._upload is None:
                    self._save(label)
                elif not self._is_named and time.monotonic() >= scan_at:
                    self._look()
                    scan_at = time.monotonic() + _SCAN_S
                self._tell()
            except LeaseLost:
                return
            except OSError as error:  # a full disk, for example
                self.say(f"a version is left out: {error}")
            except Exception:  # the next look may succeed
                log.exception("Failed to watch the checkpoint of a job")

    def end(self, is_good: bool, give_up_at: float) -> None:
        """Stores the last version. is_good: the process exited with 0, so what it left is what it meant.

        Raises LeaseLost.
        """
        self._ended.set()
        self.join(max(0.0, min(3600.0, give_up_at - time.monotonic())))
        if not is_good and self._upload and self._upload.moment.label is None and not self._has_lived_on(self._upload):
            self._upload.cut.remove()
            self._upload = None
        try:
            self._await_upload(give_up_at, is_final=is_good)
            label = self._label()
            if label is not None or (is_good and not self._is_named):
                moment = self._moment(label)
                if moment and (label is not None or self._is_new(moment.scan)) and self._fits(moment.scan):
                    self._cut(moment)
                self._await_upload(give_up_at, is_final=True)
            if is_good and self._stored:
                self._stored[0].until_ms += _FOREVER_MS
            while self._tell() is False and time.monotonic() < give_up_at:
                time.sleep(0.5)
        except OSError as error:
            self.say(f"the last version is left out: {error}")
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def abandon(self) -> None:
        """Ends the threads, and stores nothing more."""
        self._ended.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _await_upload(self, give_up_at: float, is_final: bool) -> None:
        while self._upload and time.monotonic() < give_up_at:
            wait([self._upload.done], min(1.0, max(0.0, give_up_at - time.monotonic())))
            self._settle(is_final)

    def _save(self, label: str) -> None:
        self._is_named = True
        if not label and self._processes > 1:
            self.say("a moment of several hosts needs a label, and another one each time", True)
        moment = self._moment(label)
        if moment and (not self._fits(moment.scan) or self._cut(moment)):
            os.unlink(os.path.join(self._root, SAVE))

    def _look(self) -> None:
        moment = self._moment()
        found = None if moment is None else moment.scan
        if found is None or self._seen is None or found != self._seen.scan:
            self._note_restless(found)
            self._seen = moment
            return
        self._seen.until_ms = _now_ms()
        if self._stored and self._stored[0].scan == found:
            self._stored[0].until_ms = self._seen.until_ms
        if not self._is_new(found):
            self._quiet_at = time.monotonic()
        # After TERM, the next quiet moment counts at once.
        elif self._upload is None and (time.monotonic() >= self._next_cut or self._term.is_set()) and self._fits(found):
            self._cut(self._seen)

    def _is_new(self, found: Scan) -> bool:
        """Whether no version has this state. One host needs no version of an empty folder, nor of what it restored."""
        if self._stored:
            return found != self._stored[0].scan
        return self._processes > 1 or self._differs(found)

    def _differs(self, found: Scan) -> bool:
        """Whether this is another state than the restored one."""
        manifest = self._restored.manifest
        was = (self._restored.states, manifest.folders, manifest.links)
        return was != (found.files, found.folders, found.links)

    def _scan(self) -> Scan | None:
        foreign, limit = self._foreign, self._order["max_files"]
        most = limit + len(foreign.files) + len(foreign.folders) + len(foreign.links)
        try:
            found = scan(self._root, self._uid, SAVE, most)
        except TooMany:
            self.say(f"it has over {limit} files: raise checkpoint.max_files, or keep fewer", True)
            return None
        if found is None:
            return None
        for path, why in found.left_out.items():
            self.say(f"{path!r} is left out: {why}")
        return replace(
            found,
            files={path: state for path, state in found.files.items() if foreign.files.get(path) != state},
            folders={path: mode for path, mode in found.folders.items() if path not in foreign.folders},
            links={path: target for path, target in found.links.items() if foreign.links.get(path) != target},
        )

    def _moment(self, label: str | None = None) -> _Moment | None:
        found, now_ms = self._scan(), _now_ms()
        return None if found is None else _Moment(found, label, now_ms, now_ms, time.monotonic())

    def _fits(self, found: Scan) -> bool:
        files, max_gb = found.files, self._order["max_gb"]
        if found.size_bytes <= max_gb * 1e9:
            return True
        largest = max(files, key=lambda path: files[path].size)
        size = f"{found.size_bytes / 1e9:.1f} GB in {len(files)} files, the largest is {largest}"
        self.say(f"it has over {max_gb:g} GB ({size}): raise checkpoint.max_gb, or keep fewer steps", True)
        return False

    def _cut(self, moment: _Moment) -> bool:
        """Begins the upload of a moment, unless a process writes or the folder changes."""
        if moment.label is None and self._died_at and not self._ended.is_set():
            return False
        self._number += 1
        cut = Cut(self._uid, moment.scan, self._known, os.path.join(self._copies, f"{self._number:06d}"))
        with contextlib.ExitStack() as undo:
            undo.callback(cut.remove)
            try:
                cut.link(self._root)
                if moment.label is None and not self._ended.is_set():
                    writer, is_sure = cut.writers()
                    if writer or not (is_sure or time.monotonic() - moment.since >= _UNSURE_S):
                        self._note_restless(moment.scan, writer)
                        return False
                if not self._ended.is_set():
                    cut.keep_small()
            except Spoiled:
                return False
            undo.pop_all()
        new_bytes = sum(state.size for state in cut.new.values())
        now = time.monotonic()
        self._next_cut = now + max(self._order["every_s"], 3600 * new_bytes / _MAX_BYTES_PER_HOUR)
        done = self._pool.submit(cut.store, self._bucket, f"{self._prefix}{self._number:06d}/")
        self._upload, self._quiet_at = _Upload(moment, self._number, cut, now, done), now
        return True

    def _settle(self, is_final: bool = False) -> None:
        """Takes over an upload that has ended."""
        upload = self._upload
        if upload is None or not upload.done.done():
            return
        is_sure = is_final or upload.moment.label is not None or self._has_lived_on(upload)
        if not is_sure and self._died_at is None and not self._ended.is_set():
            return
        self._upload = None
        upload.cut.remove()
        try:
            manifest, digest = upload.done.result()
        except Spoiled as error:
            self._spoiled += 1
            if self._spoiled >= _SPOILED:
                self.say(
                    f"{error} is written in place while it is stored: write to a temporary name, and rename it", True
                )
            return
        except Failure as error:
            return self.say(f"a version is left out: {error.reason}")
        if not is_sure:
            return
        self._spoiled, self._known = 0, Known(manifest, upload.moment.scan.files)
        size = sum(file.size for file in manifest.files.values())
        version = {"version": upload.number, "digest": digest, "bytes": size, "files": len(manifest.files)}
        version |= {"objects": upload.cut.objects, "is_new": self._differs(upload.moment.scan)}
        self._stored, self._told_ms, self._next_report = (upload.moment, version), -1, 0.0

    def _has_lived_on(self, upload: _Upload) -> bool:
        until = time.monotonic() if self._died_at is None else self._died_at
        return until - upload.at >= _ALIVE_S

    def _tell(self) -> bool | None:
        """Reports the last version once, and on several hosts how long it stays true. False: to be tried again."""
        if self._stored is None or time.monotonic() < self._next_report:
            return None
        moment, version = self._stored
        if self._told_ms >= 0 and (self._processes == 1 or moment.until_ms == self._told_ms):
            return None
        until_ms = moment.until_ms
        times = {"label": moment.label, "from_ms": moment.from_ms, "until_ms": until_ms}
        try:
            self._report(version | times, None)
        except OSError as error:
            log.warning("Failed to report a version of a checkpoint: %s", error)
            self._next_report = 0.0 if self._ended.is_set() else time.monotonic() + _REPORT_S
            return False
        self._told_ms = until_ms
        # All hosts of an attempt write one document.
        pause_s = max(self._order["every_s"] / 4, self._processes / 2)
        self._next_report = 0.0 if self._ended.is_set() else time.monotonic() + pause_s
        return True

    def _label(self) -> str | None:
        try:
            with open_untrusted(os.path.join(self._root, SAVE), self._uid) as file:
                return file.read(_MAX_LABEL_BYTES).decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return None

    def _note_restless(self, found: Scan | None, writer: str | None = None) -> None:
        if time.monotonic() - self._quiet_at < _RESTLESS_S:
            return
        before = self._seen.scan.files if self._seen else {}
        changed = [path for path, state in (found.files if found else {}).items() if before.get(path) != state]
        name = writer or next(iter(changed), "a file")
        self.say(
            f"no quiet moment for 2 minutes, because {name} changes: save less often, or name a moment by .save", True
        )

    def say(self, text: str, is_told: bool = False) -> None:
        """Once into the output; is_told: also into the document of the job."""
        if text.split(":")[0] in self._noted or len(self._noted) > 100:
            return
        self._noted.add(text.split(":")[0])
        self._note(f"checkpoint: {text}")
        if is_told:
            try:
                self._report(None, text[:1000])
            except OSError as error:
                log.warning("Failed to report a problem of a checkpoint: %s", error)


def _now_ms() -> int:
    return int(time.time() * 1000)
