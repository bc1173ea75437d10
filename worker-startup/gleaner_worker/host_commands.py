"""Commands of people on this host: each runs once, as the job user, beside the work in hand."""

import logging
import os
import threading
import uuid
from collections.abc import Callable

from .api import Refused
from .failures import LeaseLost
from .jobs.output import OutputParts
from .jobs.prepared import Prepared, SourceFailed
from .jobs.process import run_process
from .jobs.runner import job_limits
from .jobs.user import JobUser, NotIsolated, make_folder
from .objects import Bucket
from .source.environment import visible_of
from .source.prepare import Preparation
from .source.sealed import remove

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 20
_MOST_KNOWN = 1000
_REASON_CHARS = 10_000
_RESTARTED = "The agent restarted while the command ran; it may have done a part of its work"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED = ("LANG", "LC_ALL", "TZ", "JAX_PLATFORMS")


class HostCommands:
    def __init__(self, api, bucket: Bucket, preparation: Preparation, find_user: Callable[[], JobUser], home: str):
        self._api, self._bucket, self._preparation = api, bucket, preparation
        self._find_user, self._home = find_user, home
        self._begun = os.path.join(os.path.realpath(home), "execs")
        self._known: dict[str, None] = {}  # ids in the order of their starts
        self._lock = threading.Lock()
        self._places = threading.Semaphore(_MOST_AT_ONCE)

    def start(self, ids: list[str]) -> None:
        """Starts the commands that are new. Heartbeats name a command until its end is reported."""
        for exec_id in ids:
            with self._lock:
                if exec_id in self._known:
                    continue
                self._known[exec_id] = None
                while len(self._known) > _MOST_KNOWN:
                    self._known.pop(next(iter(self._known)))
            threading.Thread(target=self._run, args=(exec_id,), name=f"exec-{exec_id}", daemon=True).start()

    def _run(self, exec_id: str) -> None:
        with self._places:
            try:
                answer = self._api.exec(exec_id, 60)
                if answer["action"] != "exec":
                    return
                begun = self._mark(exec_id)
                outcome, code, error = self._outcome(answer["exec"]) if begun else ("refused", None, _RESTARTED)
                log.info("The command %s ended: %s %s", exec_id, outcome, "" if code is None else code)
                self._api.exec_end(exec_id, outcome, code, error, 600)
                self._unmark(exec_id)
            except (Refused, LeaseLost) as error:
                log.warning("The command %s is over: %s", exec_id, error)
            except Exception:  # the next heartbeat names the command again
                log.exception("Failed to run the command %s", exec_id)
                with self._lock:
                    self._known.pop(exec_id, None)

    def _mark(self, exec_id: str) -> bool:
        """Records that the command has begun; False if an agent before this one began it."""
        os.makedirs(self._begun, mode=0o700, exist_ok=True)
        try:
            os.close(os.open(os.path.join(self._begun, exec_id), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def _unmark(self, exec_id: str) -> None:
        os.unlink(os.path.join(self._begun, exec_id))

    def _outcome(self, order: dict) -> tuple[str, int | None, str | None]:
        """(outcome, exit code, error) of the request `exec-end`."""
        output = OutputParts(self._bucket, order["folder"], every_s=1.0)
        folder = None
        try:
            user = self._find_user()
            prepared = self._preparation.prepare(order)
            folder = make_folder(os.path.join(os.path.realpath(self._home), "jobs", f"exec-{uuid.uuid4().hex}"), user)
            ended = run_process(
                _argv(order),
                user=user,
                folder=prepared.source_folder or folder,
                environment=_environment(prepared, folder, order),
                limits=job_limits({}, float(order["timeout_s"])),
                write=output.write,
                stop=threading.Event(),
                visible=[
                    *(folder, *prepared.visible, *visible_of(prepared.python)),
                    *filter(None, [prepared.source_folder]),
                ],
            )
        except (NotIsolated, SourceFailed) as error:
            return "refused", None, str(error)[:_REASON_CHARS]
        finally:
            output.close()
            if folder is not None:
                remove(folder)
        if ended.cause == "timeout":
            return "timeout", None, f"It took longer than {order['timeout_s']:g} s"
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        return "exited", code, "It used nine tenths of the memory of its host" if ended.cause == "memory" else None


def _argv(order: dict) -> list[str]:
    return ["bash", "-c", order["argv"][0]] if order["shell"] else list(order["argv"])


def _environment(prepared: Prepared, folder: str, order: dict) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
        "PATH": f"{os.path.dirname(prepared.python)}:{_SYSTEM_PATH}",
        "HOME": folder,
        "EXEC_ID": order["id"],
        "JOB_SOURCE": prepared.source_folder or "",
        "PYTHONPATH": prepared.source_folder or "",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **prepared.environment,
    }
