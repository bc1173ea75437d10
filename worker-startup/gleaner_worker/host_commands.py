"""Commands of people on this host: each runs once, as the job user, beside the work in hand."""

import contextlib
import json
import logging
import os
import threading
import uuid
from collections.abc import Callable

from .api import Refused
from .failures import Failure, LeaseLost
from .jobs.output import OutputParts
from .jobs.prepared import Prepared, SourceFailed
from .jobs.process import run_process
from .jobs.runner import job_limits
from .jobs.user import JobUser, NotIsolated, make_folder
from .objects import Bucket
from .source.environment import visible_of
from .source.sealed import remove

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 20
_MOST_KNOWN = 1000
_REASON_CHARS = 10_000
_RESTARTED = "The agent restarted while the command ran; it may have done a part of its work"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED = ("LANG", "LC_ALL", "TZ", "JAX_PLATFORMS")

End = tuple[str, int | None, str | None]  # outcome, exit code and error of the request `exec-end`


class HostCommands:
    def __init__(
        self, api, bucket: Bucket, prepare: Callable[[dict], Prepared], find_user: Callable[[], JobUser], home: str
    ):
        self._api, self._bucket, self._prepare = api, bucket, prepare
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
            except (Refused, LeaseLost) as error:
                log.warning("The command %s is over: %s", exec_id, error)
                self._forget(exec_id)
            except Exception:  # the next heartbeat names the command again
                log.exception("Failed to run the command %s", exec_id)
                with self._lock:
                    self._known.pop(exec_id, None)

    def _run_once(self, order: dict) -> End:
        """Keeps a file from the start of the command to the report of its end, also for an agent after this one."""
        path = os.path.join(self._begun, order["id"])
        os.makedirs(self._begun, mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        end = self._outcome(order)
        with open(f"{path}.end", "w", encoding="utf-8") as file:
            json.dump(end, file)
        os.replace(f"{path}.end", path)
        return end

    def _earlier_end(self, exec_id: str) -> End | None:
        """The end of a command that has begun and whose end is not reported yet."""
        try:
            with open(os.path.join(self._begun, exec_id), encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return None
        return tuple(json.loads(text)) if text else ("refused", None, _RESTARTED)

    def _forget(self, exec_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._begun, exec_id))

    def _outcome(self, order: dict) -> End:
        output = OutputParts(self._bucket, order["folder"], every_s=1.0)
        folder = None
        try:
            user = self._find_user()
            prepared = self._prepare(order)
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
        except Exception as error:  # of this machine or of the bucket
            log.exception("Failed to run the command %s", order["id"])
            reason = error.reason if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
            return "refused", None, f"Failed to run the command: {reason}"[:_REASON_CHARS]
        finally:
            output.close()
            if folder is not None:
                remove(folder)
        if ended.cause == "timeout":
            return "timeout", None, f"It took longer than {order['timeout_s']:g} s"
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        return "exited", code, "It used more memory than this machine has left" if ended.cause == "memory" else None


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
