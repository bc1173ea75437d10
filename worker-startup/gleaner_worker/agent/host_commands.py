"""Commands that people run on this host: each runs once, as the job user, beside the current work."""

import contextlib
import json
import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable

from ..failures import Failure, LeaseLost
from ..jobs.limits import job_limits
from ..jobs.output import OutputParts
from ..jobs.prepared_code import PreparedCode, SourceFailed
from ..jobs.process import ProcessEnd, run_process
from ..jobs.user import JobUser, NotIsolated, make_folder, remove
from ..storage.objects import Bucket, Contradicts
from .api import Refused

log = logging.getLogger(__name__)

_MAX_RUNNING = 20
_MAX_ENDED = 1000  # ids that this host remembers; heartbeats name a command for seconds after its end
_REASON_CHARS = 10_000
_RESTARTED = "The agent restarted while the command ran; the command may have done part of its work"

End = tuple[str, int | None, str | None]  # outcome, exit code and error of the request `exec-end`


class HostCommands:
    """Runs the commands that heartbeats name, and reports their ends to worker-api."""

    def __init__(
        self,
        api,
        open_bucket: Callable[[dict], Bucket],
        prepare: Callable[[dict], PreparedCode],
        find_user: Callable[[], JobUser],
        home: str,
    ):
        self._api, self._open_bucket, self._prepare = api, open_bucket, prepare
        self._find_user, self._home = find_user, home
        self._records = os.path.join(os.path.realpath(home), "execs")  # a file per command, until its end is reported
        self._ends: dict[str, End] = {}  # by id, until the end is reported
        self._running: set[str] = set()  # ids of commands that wait or run
        self._ended: deque[str] = deque(maxlen=_MAX_ENDED)  # ids of the latest commands that ended
        self._lock = threading.Lock()
        self._places = threading.Semaphore(_MAX_RUNNING)

    def start(self, ids: list[str]) -> None:
        """Starts the commands that are new. Heartbeats name a command until its end is reported."""
        for exec_id in ids:
            with self._lock:
                if exec_id in self._running or exec_id in self._ended:
                    continue
                self._running.add(exec_id)
            threading.Thread(target=self._run, args=(exec_id,), name=f"exec-{exec_id}", daemon=True).start()

    def _run(self, exec_id: str) -> None:
        has_ended = True
        with self._places:
            try:
                self._run_and_report(exec_id)
            except (Refused, LeaseLost) as error:
                log.warning("worker-api rejects the command %s: %s", exec_id, error)
                self._forget(exec_id)
            except Exception:  # the next heartbeat names the command again
                log.exception("Failed to run the command %s", exec_id)
                has_ended = False
        with self._lock:
            self._running.remove(exec_id)
            if has_ended:
                self._ended.append(exec_id)

    def _run_and_report(self, exec_id: str) -> None:
        end = self._earlier_end(exec_id)
        if end is None:
            answer = self._api.exec(exec_id, 60)
            if answer["action"] != "exec":
                return
            end = self._run_once(answer["exec"])
        outcome, code, error = end
        log.info("The command %s ended: %s %s", exec_id, outcome, "" if code is None else code)
        self._api.exec_end(exec_id, outcome, code, error, 600)
        self._forget(exec_id)

    def _run_once(self, order: dict) -> End:
        """Runs the command. A file records the command until its end is reported, also for a restarted agent."""
        path = os.path.join(self._records, order["id"])
        os.makedirs(self._records, mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        end = self._outcome(order)
        with open(f"{path}.end", "w", encoding="utf-8") as file:
            json.dump(end, file)
        os.replace(f"{path}.end", path)
        return end

    def _earlier_end(self, exec_id: str) -> End | None:
        """The end of a command that an earlier attempt started; None for a new command."""
        if exec_id in self._ends:
            return self._ends[exec_id]
        try:
            with open(os.path.join(self._records, exec_id), encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return None
        return tuple(json.loads(text)) if text else ("refused", None, _RESTARTED)

    def _forget(self, exec_id: str) -> None:
        self._ends.pop(exec_id, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._records, exec_id))

    def _outcome(self, order: dict) -> End:
        output = OutputParts(self._open_bucket({"exec": order["id"]}), order["folder"], every_s=1.0)
        folder = None
        try:
            user = self._find_user()
            prepared = self._prepare(order)
            folder = make_folder(os.path.join(os.path.realpath(self._home), "jobs", f"exec-{uuid.uuid4().hex}"), user)
            own = {"HOME": folder, "EXEC_ID": order["id"]}
            ended = run_process(
                ["bash", "-c", order["argv"][0]] if order["shell"] else list(order["argv"]),
                user=user,
                folder=prepared.source_folder or folder,
                environment={**prepared.base_environment(), **own, **prepared.environment},
                limits=job_limits({}, float(order["timeout_s"])),
                write=output.write,
                stop=threading.Event(),
                own=folder,
                visible=prepared.all_visible(),
                ramfs=prepared.ramfs,
            )
            end = _end_of(ended, order)
        except (NotIsolated, SourceFailed) as error:
            end = "refused", None, str(error)[:_REASON_CHARS]
        except Exception as error:  # of this machine or of the bucket
            log.exception("Failed to run the command %s", order["id"])
            reason = error.reason if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
            end = "refused", None, f"Failed to run the command: {reason}"[:_REASON_CHARS]
        self._ends[order["id"]] = end  # the clean-up, or the file of the end, may fail
        try:
            output.close()
        except Contradicts as error:
            end = self._ends[order["id"]] = "refused", None, f"Failed to store the output: {error.reason}"
        if folder is not None:
            remove(folder)
        return end


_EXCEEDED = {
    "memory": "The command used more memory than this machine has free",
    "disk": "The command wrote more than half of what was free on the disk of this machine",
}


def _end_of(ended: ProcessEnd, order: dict) -> End:
    if ended.cause == "timeout":
        return "timeout", None, f"The command took longer than {order['timeout_s']:g} s; raise its timeout (--timeout)"
    code = ended.exit_code if ended.signal is None else 128 + ended.signal
    return "exited", code, _EXCEEDED.get(ended.cause or "")
