"""The agent on a TPU VM: leases a stream or a job, works on it and ends the lease, until worker-api says exit."""

import logging
import os
import shutil
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ..extract.state import ExtractionState
from ..failures import Failure, LeaseLost, raise_exits
from ..jobs.runner import JobRunner
from ..jobs.user import find_job_user
from ..names import log_name
from ..storage.downloads import Downloads
from ..storage.lease_credentials import LeaseCredentials
from ..storage.objects import Bucket, make_client
from .api import Refused, WorkerApi
from .job_work import JobOrder, JobWork
from .logs import LogShipper, set_up_logging
from .metadata import Credentials, Identity, ending_notice, load_identity, load_secret
from .orders import Orders

if TYPE_CHECKING:
    from .stream_work import StreamWork

log = logging.getLogger(__name__)

# A preempted VM has 30 s from the notice: `flush_s` of the state for the work, and this time for the release.
_RELEASE_S = 3.0
_NOTICES_EVERY_S = 1.0  # between two requests for the notices of an end
_NOTICE_S = 2.0  # longest time from a signal that ends a process to the preemption notice
_KILLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
_REASON_CHARS = 10_000  # of a failure; worker-api refuses longer reasons


class Agent:
    """The main loop, with threads for heartbeats and for the notices of an end."""

    def __init__(self, identity: Identity, shipper: LogShipper):
        self.identity = identity
        self.shipper = shipper
        self.api = WorkerApi(identity, load_secret(identity.home))
        self.others = make_client(identity.project, Credentials())
        self.logs = Bucket(self._open_bucket(None).client, identity.logs_bucket)
        self.downloads = Downloads(identity.home, identity.incarnation, identity.bucket)
        self.preempted = threading.Event()
        self.exiting = threading.Event()
        self.streams: StreamWork | None = None
        find_user = partial(find_job_user, has_network=identity.jobs_have_network)
        self.orders = Orders(identity, self.api, self._open_bucket, find_user)
        self.jobs = JobWork(identity, self._open_bucket, self.orders, find_user, self.api)
        # The lease and the state of its work, for the heartbeat.
        self.current: tuple[dict, ExtractionState | JobRunner] | None = None
        self.heartbeat_s = 2.0
        self._answered_at = 0.0  # start of the last request that worker-api answered
        self.exit_code = 0

    def run(self) -> int:
        """Works until worker-api says exit or the VM is preempted; returns the exit status. Raises Refused."""
        self._answered_at = time.monotonic()
        if (hello := self._in_thread(self.api.hello)) and hello["action"] == "exit":
            log.info("Exiting: %s", hello.get("reason", ""))
            return 0
        threading.Thread(target=self._heartbeats, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._watch_notices, name="notices", daemon=True).start()
        if order := self.jobs.pop_stored_order():
            self._run_job(order)
        while not self.preempted.is_set() and not self.exiting.is_set():
            asked_at = time.monotonic()
            try:
                loaded = self.streams.loaded if self.streams else None
                answer: dict[str, Any] | None = self._in_thread(partial(self.api.lease, loaded))
                self._answered_at = asked_at
            except LeaseLost:  # worker-api still counts an earlier lease, whose answer was lost
                answer = {"action": "wait"}
            if answer is None:
                break
            self.heartbeat_s = float(answer.get("heartbeat_s", self.heartbeat_s))
            if answer["action"] == "exit":
                log.info("Exiting: %s", answer.get("reason", ""))
                return 0
            if answer["action"] == "work":
                self._work(answer["lease"], answer["work"])
            elif answer["action"] == "job":
                self._run_job(self.jobs.new_order(answer))
            else:
                self._pause(float(answer.get("retry_s", 2)))
        log.info("Exiting: %s", "this VM is preempted" if self.preempted.is_set() else "worker-api asked for it")
        return self.exit_code

    def _open_bucket(self, lease: dict | None) -> Bucket:
        """The bucket with the rights of a lease or a command; without one, with those of this incarnation."""
        client = make_client(self.identity.project, LeaseCredentials(lambda: self.api.token(lease)))
        return Bucket(client, self.identity.bucket, others=self.others)

    def _work(self, lease: dict, raw_work: dict) -> None:
        lease = {key: lease[key] for key in ("run", "stream", "epoch")}
        state = ExtractionState(on_wait=self.orders.changed.set)
        self.current = (lease, state)
        log.info("Leased stream %s of run %s, epoch %s", lease["stream"], lease["run"], lease["epoch"])
        try:
            outcome = self._in_thread(lambda: self._load_streams().run(lease, raw_work, state), state) or "preempted"
            failure = None
        except LeaseLost:
            log.warning("Lost the lease of stream %s of run %s; stopping its work", lease["stream"], lease["run"])
            self.current = None
            return
        except Failure as error:
            failure = {
                "kind": error.kind,
                "reason": error.reason[:_REASON_CHARS],
                "contradiction": error.contradiction,
            }
            outcome = "failed"
            log.error("%s", error.reason)
        except BaseException as error:  # also a panic of native code
            raise_exits(error)
            reason = f"Failed to extract stream {lease['stream']}: {type(error).__name__}: {error}"
            outcome, failure = "failed", {"kind": "infrastructure", "reason": reason[:_REASON_CHARS]}
            log.exception("Failed to extract stream %s of run %s", lease["stream"], lease["run"])
        self._release(lease, outcome, failure, state)

    def _load_streams(self) -> "StreamWork":
        """Imports JAX with the first stream: a VM that runs jobs alone starts in half the time."""
        if self.streams is None:
            from .stream_work import StreamWork

            self.streams = StreamWork(self.identity, self._open_bucket, self.api, self.downloads)
        return self.streams

    def _release(self, lease: dict, outcome: str, failure: dict | None, state: ExtractionState) -> None:
        log.info("Releasing stream %s of run %s: %s", lease["stream"], lease["run"], outcome)
        self.shipper.ship_soon()
        try:
            if self.preempted.is_set():
                self.api.release(lease, outcome, failure, state.progress(), _RELEASE_S)
            else:
                self._in_thread(lambda: self.api.release(lease, outcome, failure, state.progress(), 600))
        except LeaseLost:
            log.warning("The lease was lost before its release")
        except OSError as error:
            log.warning("Failed to release: %s; the lease will expire", error)
        finally:
            self.current = None

    def _run_job(self, order: JobOrder) -> None:
        lease, runner = order.lease, self.jobs.runner(order)
        self.current = (lease, runner)
        log.info("Leased job %s, epoch %s", lease["job"], lease["epoch"])
        self.orders.attach(runner)
        try:
            ending = self._in_thread(runner.run, runner) or runner.preempted()
            if self._is_by_preemption(ending):
                ending |= {"outcome": "preempted", "cause": None, "error": None}
            log.info("Finishing job %s: %s %s", lease["job"], ending["outcome"], ending["cause"] or "")
            self.shipper.ship_soon()
            if self.preempted.is_set():
                self.api.finish(lease, ending, _RELEASE_S)
            else:
                self._in_thread(lambda: self.api.finish(lease, ending, 600))
        except LeaseLost:
            log.warning("Lost the lease of job %s; stopping its work", lease["job"])
        except OSError as error:
            log.warning("Failed to finish: %s; the lease will expire", error)
        finally:
            self.orders.detach()
            self.current = None

    def _is_by_preemption(self, ending: dict) -> bool:
        """True for a failure during a shutdown of the VM: the system ends the job at the same time as the agent."""
        if ending["outcome"] != "failed" or ending["cause"] not in ("exit", "tpu"):
            return False
        if ending["cause"] == "tpu" or ending["exit_code"] in _KILLED:
            self.preempted.wait(_NOTICE_S)
        return self.preempted.is_set()

    def _in_thread(self, call, state: ExtractionState | JobRunner | None = None):
        """Runs `call` on a thread, so that the main thread receives signals.

        Returns None when a preemption ends the wait, or an exit without a `state`.
        """
        result: dict = {}

        def run() -> None:
            try:
                result["value"] = call()
            except BaseException as error:  # raised again below
                result["error"] = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive() and not self.preempted.is_set() and not (state is None and self.exiting.is_set()):
            thread.join(0.1)
            if isinstance(state, JobRunner):
                self._fence(state)
        if thread.is_alive() and state:
            state.request("flush")
            thread.join(state.flush_s)
        if "error" in result:
            raise result["error"]
        return result.get("value")

    def _fence(self, runner: JobRunner) -> None:
        """Ends a job before another worker can get its lease: two attempts must not write one checkpoint."""
        silent_s, limit_s = time.monotonic() - self._answered_at, runner.order["fence_s"]
        if silent_s > limit_s and runner.request("stop"):
            log.error("Ending the job: worker-api has not answered for %.0f s, so its lease may end", silent_s)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.preempted.is_set() and not self.exiting.is_set():
            time.sleep(0.05)

    def _heartbeats(self) -> None:
        """Reports this worker to worker-api and follows its answers. Continues while worker-api does not answer."""
        while True:
            lease, state = self.current or (None, None)
            asked_at = time.monotonic()
            try:
                progress = state.progress() if state else None
                phase = state.phase if state else "idle"
                answer = self.api.heartbeat(phase, lease, progress, self.orders.report(), self.downloads.report())
                self.heartbeat_s = float(answer.get("heartbeat_s") or self.heartbeat_s)
                self._answered_at = asked_at
                self._handle_answer(answer, lease, state)
                self.orders.follow(answer)
            except LeaseLost:
                if state:
                    state.request("stop")
            except Refused as error:
                log.error("%s", error)
                self.exit_code = 1
                self.exiting.set()
                if state:
                    state.request("stop")
            except OSError as error:
                log.warning("Failed to send a heartbeat: %s", error)
            except Exception:  # any error: without heartbeats the VM counts as dead
                log.exception("Failed to send a heartbeat: unexpected error")
            self.orders.changed.wait(self.heartbeat_s)
            self.orders.changed.clear()

    def _handle_answer(self, answer: dict, lease: dict | None, state: ExtractionState | JobRunner | None) -> None:
        action = answer["action"]
        if action == "exit":
            self.exiting.set()
        # Another host of the slice may have ended the attempt.
        if state and lease and "job" in lease and "lease" in answer and answer["lease"] != lease:
            log.info("Job %s, epoch %s, has ended", lease["job"], lease["epoch"])
            state.request("stop")
        if state and action in ("drain", "cancel", "stop", "exit"):
            log.info("worker-api asks for %s: %s", action, answer.get("reason", ""))
            state.request("stop" if action == "exit" else action)

    def _watch_notices(self) -> None:
        while not self.preempted.is_set():
            try:
                if notice := ending_notice():
                    self.preempted.set()
                    log.warning("This VM %s", notice)
            except Exception:  # any error: a missed notice costs every step that is not stored
                log.exception("Failed to ask whether this VM ends")
            time.sleep(_NOTICES_EVERY_S)


def main() -> int:
    """Runs the agent; returns the exit status of the process."""
    shipper = set_up_logging(os.environ.get("GLEANER_HOME", "/opt/gleaner"))
    agent = Agent(load_identity(), shipper)

    def on_signal(number: int, _frame: object) -> None:
        agent.preempted.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    identity = agent.identity
    name = log_name(identity.worker, identity.incarnation, identity.host)
    shipper.start(agent.logs, name)
    shutil.rmtree(os.path.join(identity.home, "work"), ignore_errors=True)
    try:
        code = agent.run()
    except Refused as error:
        log.error("%s", error)
        code = 1
    except BaseException as error:
        raise_exits(error)
        log.exception("Failed to run the agent: unexpected error")
        code = 1
    shipper.ship(agent.logs, name)
    return code
