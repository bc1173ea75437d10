"""Orders of the control plane beside the lease: the source of the pool, and commands for this host."""

import logging
import threading
from collections.abc import Callable

from .host_commands import HostCommands
from .jobs.prepared import Prepared, SourceFailed
from .jobs.runner import JobRunner
from .jobs.user import JobUser
from .metadata import Identity
from .objects import Bucket
from .source.prepare import Preparation

log = logging.getLogger(__name__)

_REASON_CHARS = 2000  # of a report; worker-api cuts longer ones
_AGAIN_S = 30.0  # between two attempts to prepare the same version, while the bucket or worker-api is away


class Orders:
    """changed: set when the next heartbeat has news."""

    def __init__(self, identity: Identity, api, bucket: Bucket, user_finder: Callable[[], JobUser]):
        self._api = api
        self._preparation = Preparation(identity.home, bucket, user_finder)
        self._commands = HostCommands(api, bucket, self._preparation, user_finder, identity.home)
        self.changed = threading.Event()
        self._lock = threading.Lock()
        self._wanted = 0  # version of the pool's source
        self._known = 0  # version that was prepared, or that failed
        self._report: dict | None = None
        self._runner: JobRunner | None = None
        self._is_preparing = False

    def take(self, answer: dict) -> None:
        """Follows the orders in the answer to a heartbeat. Returns at once."""
        self._commands.start(answer.get("execs") or [])
        with self._lock:
            self._wanted = max(self._wanted, int(answer.get("source_version") or 0))
            if self._wanted <= self._known or self._is_preparing:
                return
            self._is_preparing = True
        threading.Thread(target=self._update, name="source", daemon=True).start()

    def report(self) -> dict | None:
        """The report of the newest version, for the next heartbeat."""
        return self._report

    def attach(self, runner: JobRunner) -> None:
        with self._lock:
            self._runner = runner

    def detach(self) -> None:
        with self._lock:
            self._runner = None

    def prepare(self, order: dict) -> Prepared:
        """What a job needs. A job of the pool's source has at least the version of its order."""
        version = order.get("source_version")
        prepared = self._preparation.prepare(order, version or 0)
        if version:
            self._note(int(version), "ready", prepared.ran, None)
        return prepared

    def _update(self) -> None:
        try:
            while True:
                answer = self._api.source(_AGAIN_S)
                version = int(answer["version"])
                self._note(version, "preparing", None, None)
                try:
                    prepared = self._preparation.prepare(answer, version)
                except SourceFailed as error:
                    log.error("Failed to prepare version %s of the source: %s", version, error.reason)
                    self._note(version, "failed", None, error.reason[:_REASON_CHARS])
                else:
                    self._restart(prepared)
                    self._note(version, "ready", prepared.ran, None)
                with self._lock:
                    if self._wanted <= self._known:
                        self._is_preparing = False
                        return
        except Exception as error:  # the next heartbeat starts another attempt
            log.warning("Failed to prepare the source of the pool: %s", error)
            with self._lock:
                self._is_preparing = False

    def _note(self, version: int, status: str, ran: dict | None, error: str | None) -> None:
        with self._lock:
            if self._report and (version < self._report["version"]):
                return
            self._report = {"version": version, "status": status, "ran": ran, "error": error}
            if status != "preparing":
                self._known = max(self._known, version)
        self.changed.set()

    def _restart(self, prepared: Prepared) -> None:
        """Restarts the job in hand if its code is that of the pool."""
        with self._lock:
            runner = self._runner
        if runner is not None and runner.order.get("source_version") is not None:
            runner.restart(prepared)
