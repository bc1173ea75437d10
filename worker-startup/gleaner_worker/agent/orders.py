"""Orders of the control plane beside the lease: the source of the pool, and commands for this host."""

import logging
import threading
from collections.abc import Callable

from ..jobs.prepared_code import PreparedCode, SourceFailed
from ..jobs.runner import JobRunner
from ..jobs.user import JobUser
from ..source.prepare import Preparation
from ..source.private import Repositories
from ..storage.objects import Bucket
from .host_commands import HostCommands
from .metadata import Identity

log = logging.getLogger(__name__)

_REASON_CHARS = 2000  # of a report; worker-api cuts longer reasons
_GIVE_UP_AFTER_S = 30.0  # of the request for the source; the next heartbeat starts another attempt


class Orders:
    """Follows orders on threads of its own. changed: set when the next heartbeat has news; it then goes at once."""

    def __init__(
        self, identity: Identity, api, open_bucket: Callable[[dict | None], Bucket], user_finder: Callable[[], JobUser]
    ):
        self._api = api
        repositories = Repositories(identity.git_host, lambda check: api.secrets(None, check).get("git"))
        self._preparation = Preparation(identity.home, open_bucket(None), user_finder, repositories)
        self._commands = HostCommands(api, open_bucket, self._prepare_for_command, user_finder, identity.home)
        self.changed = threading.Event()
        self._lock = threading.Lock()
        self._wanted = 0  # version of the pool's source
        self._known = 0  # version that was prepared, or that failed
        self._report: dict | None = None
        self._ready: PreparedCode | None = None  # of the newest version that could be prepared
        self._runner: JobRunner | None = None
        self._is_preparing = False

    def follow(self, answer: dict) -> None:
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
        """Sets the current job, which a new version of the source restarts."""
        with self._lock:
            self._runner = runner

    def detach(self) -> None:
        with self._lock:
            self._runner = None

    def prepare(self, order: dict) -> PreparedCode:
        """The source and environment of a job: of the pool's source, the version of the order or a newer version."""
        version = order.get("source_version")
        with self._lock:
            runner = self._runner
        stop = runner.ended if runner is not None and runner.order is order else None
        prepared = self._preparation.prepare(order, version or 0, stop)
        if version:
            self._note(int(version), "ready", prepared)
        return prepared

    def _prepare_for_command(self, order: dict) -> PreparedCode:
        """The newest source that is ready on this host. A command waits for no newer version in preparation."""
        with self._lock:
            ready = self._ready
        return ready or self._preparation.prepare(order, int(order.get("source_version") or 0))

    def _update(self) -> None:
        """Prepares the newest version. The next heartbeat starts the preparation of a later version."""
        try:
            answer = self._api.source(_GIVE_UP_AFTER_S)
            if answer["action"] == "source" and answer["version"] > self._known:
                self._prepare_version(answer, answer["version"])
        except Exception as error:  # the next heartbeat starts another attempt
            log.warning("Failed to prepare the source of the pool: %s", error)
        finally:
            with self._lock:
                self._is_preparing = False

    def _prepare_version(self, answer: dict, version: int) -> None:
        self._note(version, "preparing")
        try:
            prepared = self._preparation.prepare(answer, version)
        except SourceFailed as error:
            log.error("Failed to prepare version %s of the source: %s", version, error.reason)
            self._note(version, "failed", error=error.reason[:_REASON_CHARS])
        else:
            self._restart(prepared, version)
            self._note(version, "ready", prepared)

    def _note(self, version: int, status: str, prepared: PreparedCode | None = None, error: str | None = None) -> None:
        with self._lock:
            if self._report and (version < self._report["version"]):
                return
            ran = prepared.ran if prepared else None
            self._report = {"version": version, "status": status, "ran": ran, "error": error}
            self._ready = prepared or self._ready
            if status != "preparing":
                self._known = max(self._known, version)
        self.changed.set()

    def _restart(self, prepared: PreparedCode, version: int) -> None:
        """Restarts the current job if it runs an earlier version of the pool's source."""
        with self._lock:
            runner = self._runner
        running = runner.order.get("source_version") if runner is not None else None
        if runner is not None and running is not None and running < version:
            runner.restart(prepared)
