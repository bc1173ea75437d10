"""One attempt of a job: prepares its code, runs it as the job user, and stores its output, result and artifacts."""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..failures import Failure, LeaseLost
from ..storage.objects import Bucket
from ..storage.untrusted_files import read_report
from .artifacts import Artifacts, note_left_out
from .bucket_address import BucketAccess, reaching_bucket
from .checkpoint.restore import Restored, Unusable, restore
from .checkpoint.watch import Watch
from .cluster import ONE_HOST, Cluster, cluster_of, lost_peer
from .egress import reaching
from .job_folder import JobFolder, path_of_attempt
from .job_result import ResultFailed, store_result
from .limits import Limits, job_limits
from .mask import Mask, hide
from .output import OutputParts
from .prepared_code import PreparedCode, SourceFailed
from .process import ProcessEnd, run_process
from .user import JobUser, NotIsolated, find_job_user

log = logging.getLogger(__name__)

# A preempted VM has 30 s: 24 s for the process and the uploads, the rest for the request `finish`.
_FLUSH_S = 24.0
# Times that the timeout does not count; the control plane allows both and one minute.
_PREPARE_S = 60.0  # of the preparation
_START_S = 60.0  # of JAX, before the code
_JOIN_S = 120.0  # from the first host that calls to the last one
# Time for the last output of a host whose attempt another host has ended.
_LAST_OUTPUT_S = 5.0
# Time for the last version of the checkpoint of a job that ends.
_LAST_VERSION_S = 3600.0
_TAIL_BYTES = 16_384  # a fatal error of JAX ends with a long stack trace
_MAX_ERROR_CHARS = 10_000


class JobRunner:
    """Runs one attempt. Has the interface of ExtractionState for the agent: phase, progress, request and flush_s."""

    flush_s = _FLUSH_S

    def __init__(
        self,
        order: dict,
        epoch: int,
        home: str,
        bucket: Bucket,
        prepare: Callable[[dict], PreparedCode],
        find_user: Callable[[], JobUser] = find_job_user,
        machine_settings: Callable[[Cluster], Mapping[str, str]] = lambda cluster: {},  # variables for libtpu
        # Sends a stored version, or a problem of the checkpoint, to worker-api.
        report: Callable[[dict | None, str | None], None] = lambda version, problem: None,
        # Reads the secrets of the job by their variables. Its argument is called during waits, and may raise.
        read_secrets: Callable[[Callable[[], None]], Mapping[str, str]] = lambda check: {},
        access: BucketAccess | None = None,
    ):
        self._report = report
        self.order, self._phase = order, "loading"
        self._open_folder: JobFolder | None = None
        self._read_secrets = read_secrets
        self._secrets: Mapping[str, str] = {}
        self._cluster, self._folder = ONE_HOST, order["folder"]
        self._machine_settings, self._access = machine_settings, access
        self._epoch, self._home, self._prepare, self._find_user = epoch, home, prepare, find_user
        self._bucket = bucket.checked(self._check)
        self._output_bucket = bucket.checked(self._check_output)
        self._lock = threading.Lock()
        self._ended_as: str | None = None  # "stop" or "flush"
        self._give_up_at = float("inf")
        self._next: PreparedCode | None = None
        self._stop = threading.Event()
        self.ended = threading.Event()  # the lease is lost or the VM is preempted; the preparation stops too
        self._tail = bytearray()

    @property
    def phase(self) -> str:
        folder = self._open_folder
        return folder.phase() if folder and self._phase == "running" else self._phase

    def progress(self) -> None:
        return None

    def request(self, mode: str) -> bool:
        """stop: the lease is lost; write nothing more, but a host of several its last output.

        flush: the VM is preempted. cancel: a person ends the job, which stores what it has. drain: the job continues.
        Returns whether this changes anything.
        """
        with self._lock:
            if mode == "drain" or self._ended_as in (mode, "stop") or (mode, self._ended_as) == ("cancel", "flush"):
                return False
            if mode == "flush" and self._ended_as in (None, "cancel"):
                self._give_up_at = time.monotonic() + _FLUSH_S
            self._ended_as = mode
            self.ended.set()
            self._stop.set()
            return True

    def restart(self, prepared: PreparedCode) -> None:
        """Ends the process with TERM and runs it again with another source. The deadline stays.

        On several hosts one process cannot restart alone: the first host ends the attempt, and the job runs again.
        """
        with self._lock:
            if self._ended_as is None and self._cluster.process == 0:
                self._next = prepared
                self._stop.set()

    def preempted(self) -> dict:
        """The fields of the request `finish` for an attempt that a preemption ended."""
        return _ending("preempted", None, None, None)

    def run(self) -> dict:
        """Returns the fields of the request `finish`. Raises LeaseLost when the lease is lost."""
        folder = None
        began = time.monotonic()
        try:
            self._cluster = cluster_of(self.order)
            if self._cluster.processes > 1:
                self._folder += f"host_{self._cluster.process}/"
                # Its process cannot connect to the others a second time.
                if os.path.lexists(path_of_attempt(self._home, self.order, self._epoch)):
                    return _failed("machine", "The host restarted in the middle of the attempt")
            user = self._find_user()
            prepared = self._prepare(self.order)
            self._check()
            self._get_secrets()
            join = {"JOB_JOIN_S": f"{_JOIN_S + self._restore_s():.0f}"}
            variables = {**self._cluster.variables(), **join, **self._machine_settings(self._cluster)}
            access = self._access if user.has_network else None
            with (
                reaching(user, self._cluster) as user,
                reaching_bucket(access, self.order, self._check) as addresses,
            ):
                folder = JobFolder(self._home, self.order, self._epoch, user, variables | addresses, prepared)
                return self._attempt(folder, prepared, began)
        except LeaseLost:
            raise
        except SourceFailed as error:
            if self._ended_as == "stop":
                raise LeaseLost from error
            return self.preempted() if self._ended_as else _failed(error.cause, error.reason)
        except NotIsolated as error:
            return _failed("isolation", str(error))
        except Exception as error:  # an error of this machine or of the bucket; another worker may succeed
            if self._ended_as == "stop":
                raise LeaseLost from error
            if self._ended_as:
                return self.preempted()
            log.exception("Failed to run job %s", self.order["id"])
            reason = error.reason if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
            contradiction = error.contradiction if isinstance(error, Failure) else None
            ending = _failed("machine", f"Failed to run job {self.order['id']}: {reason}")
            return ending | {"contradiction": contradiction}
        finally:
            if folder is not None:
                folder.remove()

    def _attempt(self, folder: JobFolder, prepared: PreparedCode, began: float) -> dict:
        prepared_s = time.monotonic() - began
        wall_s = max(1.0, self.order["timeout_s"] - max(0.0, prepared_s - _PREPARE_S))
        limits = job_limits(self.order.get("limits") or {}, wall_s)
        output = OutputParts(self._output_bucket, f"{self._folder}output")
        artifacts = Artifacts(folder.artifacts, folder.user.uid, self._bucket, self._folder)
        with contextlib.ExitStack() as end:
            end.callback(lambda: output.close(_LAST_OUTPUT_S if self._is_ended_by_a_peer() else 0))
            try:
                watch = self._open_checkpoint(folder, output)
            except Unusable as error:
                return _failed("checkpoint", f"No stored version of the checkpoint can be restored: {error}")
            end.callback(watch.abandon)
            end.callback(artifacts.abandon)
            artifacts.start()
            self._open_folder, self._phase = folder, "running"
            ended, prepared = self._run_process(folder, prepared, limits, output, watch)
            self._phase = "uploading"
            return self._store(folder, ended, output, watch, artifacts) | {"ran": prepared.ran}

    def _open_checkpoint(self, folder: JobFolder, output: OutputParts) -> Watch:
        """Restores the newest version that is whole. Raises Unusable where versions exist and none is."""
        order, root, uid = self.order["checkpoint"], folder.checkpoint, folder.user.uid
        process, processes = place = self._cluster.process, self._cluster.processes
        bucket = Bucket(self._bucket.client, order["bucket"], self._check)

        def note(text: str) -> None:
            output.write(f"[gleaner] {text}\n".encode())

        restored, problem = Restored(), None
        # The hosts of an attempt must restore the same version.
        for version in order["versions"][: 1 if processes > 1 else None]:
            began = time.monotonic()
            reading = bucket.checked(self._until(began + version["restore_s"]))
            try:
                restored = restore(reading, order["folder"], version["parts"], place, root, (uid, folder.user.gid))
            except Unusable as error:
                problem = f"the version of {version['at']} is not usable: {error}"
                folder.clear_checkpoint()
            else:
                label = f" ({version['label']})" if version["label"] else ""
                note(f"checkpoint of {version['at']}{label} restored in {time.monotonic() - began:.1f} s")
                break
        else:
            if problem is not None:
                raise Unusable(problem)

        def report(version: dict | None, problem: str | None) -> None:
            if version is not None:  # the attempt that goes on from it continues this output without a gap
                output.hurry(_LAST_OUTPUT_S)
            self._report(version, problem)

        prefix = f"{order['folder']}epoch_{self._epoch}/host_{process}/"
        watch = Watch(root, folder.copies, uid, bucket, order, prefix, processes, restored, report, note, self._stop)
        if problem is not None:
            watch.say(problem, is_told=True)
        watch.start()
        return watch

    def _restore_s(self) -> float:
        """Most seconds of the restore, by which the hosts of an attempt may differ."""
        return max((version["restore_s"] for version in self.order["checkpoint"]["versions"][:1]), default=0)

    def _until(self, deadline: float) -> Callable[[], None]:
        def check() -> None:
            self._check()
            if self._ended_as is not None or time.monotonic() > deadline:
                raise Failure("infrastructure", "the restore of the checkpoint took too long")

        return check

    def _store(
        self, folder: JobFolder, ended: ProcessEnd, output: OutputParts, watch: Watch, artifacts: Artifacts
    ) -> dict:
        if self._ended_as == "stop":
            raise LeaseLost
        finish = self._conclude(folder, ended)
        if ended.cause != "stopped":
            folder.keep_programs()
        watch.end(ended.exit_code == 0, min(self._give_up_at, time.monotonic() + _LAST_VERSION_S))
        stored, problems = artifacts.end()
        output.close(max(1.0, min(600.0, self._give_up_at - time.monotonic())), note_left_out(problems))
        if self._ended_as == "stop":
            raise LeaseLost
        if time.monotonic() > self._give_up_at:  # a file that is not in the bucket is lost with this VM
            finish = self.preempted()
        return finish | {"has_artifacts": stored > 0}

    def _run_process(
        self, folder: JobFolder, prepared: PreparedCode, limits: Limits, output: OutputParts, watch: Watch
    ) -> tuple[ProcessEnd, PreparedCode]:
        deadline = time.monotonic() + limits.wall_s

        mask = Mask(self._secrets.values())

        def write(data: bytes) -> None:
            self._tail += data[-_TAIL_BYTES:]
            del self._tail[:-_TAIL_BYTES]
            output.write(data)

        start_s = _START_S + (self._restore_s() if self._cluster.processes > 1 else 0)
        while True:
            watch.process_began()
            ended = run_process(
                folder.argv(prepared),
                user=folder.user,
                folder=prepared.source_folder or folder.path,
                environment={**folder.environment(prepared), **self._secrets},
                limits=replace(limits, wall_s=max(0.0, deadline - time.monotonic()), start_s=start_s),
                write=lambda data: write(mask.hide(data)),
                stop=self._stop,
                own=folder.path,
                visible=prepared.all_visible(),
                tmp=folder.tmp,
                ramfs=prepared.ramfs,
                has_started=folder.has_started,
                on_death=watch.process_died,
            )
            write(mask.end())
            start_s, deadline = start_s - ended.start_s, deadline + ended.start_s
            with self._lock:
                is_alone = self._cluster.processes == 1
                if ended.cause != "stopped" or self._next is None or self._ended_as is not None or not is_alone:
                    return ended, prepared
                # A process that was ended in the middle of a save leaves half of it: the next attempt restores.
                if watch.is_used and ended.exit_code != 0:
                    return ended, prepared
                prepared, self._next = self._next, None
                self._stop.clear()
                folder.is_restarted = True
            output.write(b"[gleaner] restarted with a new version of the source\n")
            folder.clear_result()

    def _conclude(self, folder: JobFolder, ended: ProcessEnd) -> dict:
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        if ended.cause == "stopped":
            return _ending("drained" if self._ended_as is None else "preempted", None, None, code)
        has_peers = self._cluster.processes > 1
        if ended.cause == "timeout":
            if has_peers and folder.has_started is not None and not folder.has_started():
                return _failed("peer", "The hosts did not start JAX together in time", code)
            limit = f"its timeout of {self.order['timeout_s']:g} s; raise its timeout (--timeout)"
            return _failed("timeout", f"The job took longer than {limit}", code)
        if ended.cause == "memory":
            return _failed("memory", "The job used more memory than its limit; raise limits.memory_gb", code)
        if ended.cause == "disk":
            why = "The job wrote more bytes or more files than its limits; raise limits.disk_gb or limits.files"
            return _failed("disk", why, code)
        if code != 0:
            report = read_report(folder.report, folder.user.uid)
            error = hide(report.get("error") or self._why(ended), self._secrets.values())
            if has_peers and (lost := lost_peer(code, error, bytes(self._tail))):
                return _failed("peer", f"JAX lost another host: {lost}", code)
            return _failed(report.get("cause", "exit"), error, code)
        if self._cluster.process != 0:  # the result is that of the first host
            return _ending("completed", None, None, code)
        try:
            result = store_result(folder.result, folder.user.uid, self._bucket, self.order["folder"])
        except ResultFailed as error:
            return _failed("result", str(error), code)
        return _ending("completed", None, None, code) | result

    def _why(self, ended: ProcessEnd) -> str:
        lines = bytes(self._tail).decode("utf-8", "replace").strip().splitlines()
        how = f"exited with {ended.exit_code}" if ended.signal is None else f"was killed by {_name(ended.signal)}"
        return f"The process {how}" + (f": {lines[-1][:2000]}" if lines else "")

    def _get_secrets(self) -> None:
        """Asks for the secrets of the job, which stay in the memory of this runner and of the process."""
        if not self.order.get("secrets"):
            return
        try:
            self._secrets = self._read_secrets(self._check)
        except Failure as error:
            if error.kind != "model":  # another host may read them
                raise
            raise SourceFailed("setup", error.reason) from None

    def _check(self) -> None:
        """Raises to end uploads: at once without the lease; on a preempted VM, in time for the request `finish`."""
        if self._ended_as == "stop":
            raise LeaseLost
        if time.monotonic() > self._give_up_at:
            raise Failure("infrastructure", "this VM is preempted")

    def _check_output(self) -> None:
        if not self._is_ended_by_a_peer():
            self._check()

    def _is_ended_by_a_peer(self) -> bool:
        """True where another host may have ended the attempt. No other attempt writes into the folder of this host."""
        return self._ended_as == "stop" and self._cluster.processes > 1


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failed(cause: str, error: str, exit_code: int | None = None) -> dict:
    return _ending("failed", cause, error[:_MAX_ERROR_CHARS], exit_code)


def _ending(outcome: str, cause: str | None, error: str | None, exit_code: int | None) -> dict:
    ending = {"outcome": outcome, "cause": cause, "error": error, "exit_code": exit_code}
    return ending | {"result": None, "result_object": None, "has_artifacts": False, "ran": None}
