"""The agent on a TPU VM: leases a stream, extracts it, releases it, until worker-api or a preemption ends it."""

import logging
import os
import shutil
import signal
import threading
import time
from typing import Any

from .api import Refused, WorkerApi
from .control import Control
from .extract import extract
from .failures import Failure, LeaseLost
from .logs import LogShipper, set_up_logging
from .metadata import Credentials, Identity, is_preempted, load_identity, load_secret
from .model.hub import worker_hub
from .model.model import Model, find_files, load_model
from .model.model_source import read_config
from .names import log_name
from .objects import Bucket, make_client
from .records.samples import Reader, make_reader
from .spec import Spec
from .work import Work, parse_work

log = logging.getLogger(__name__)

# A preempted VM has 30 s from the notice: these seconds to store computed batches, and the rest for the release.
_FLUSH_S = 15.0
_RELEASE_S = 3.0
_REASON_CHARS = 10_000  # of a failure; worker-api refuses longer ones


class Agent:
    def __init__(self, identity: Identity, shipper: LogShipper):
        self.identity = identity
        self.shipper = shipper
        self.api = WorkerApi(identity, load_secret(identity.home))
        self.bucket = Bucket(make_client(identity.project, Credentials()), identity.bucket)
        self.logs = Bucket(self.bucket.client, identity.logs_bucket)
        self.preempted = threading.Event()
        self.exiting = threading.Event()
        self.hub = worker_hub(identity.hf_endpoint, identity.hf_token_secret, Credentials())
        self.model: Model | None = None
        self.reader: Reader | None = None
        self.loaded: dict | None = None  # as worker-api receives it
        self.loaded_for: tuple[str, Spec] | None = None
        self.in_hand: tuple[dict, Control] | None = None  # the lease, for the heartbeat
        self.heartbeat_s = 2.0
        self.exit_code = 0

    def run(self) -> int:
        if (hello := self._in_thread(self.api.hello)) and hello["action"] == "exit":
            log.info("Leaving: %s", hello.get("reason", ""))
            return 0
        threading.Thread(target=self._heartbeats, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._watch_preemption, name="preemption", daemon=True).start()
        while not self.preempted.is_set() and not self.exiting.is_set():
            try:
                answer: dict[str, Any] | None = self._in_thread(lambda: self.api.lease(self.loaded))
            except LeaseLost:  # worker-api still counts an earlier lease, whose answer was lost
                answer = {"action": "wait"}
            if answer is None:
                break
            self.heartbeat_s = float(answer.get("heartbeat_s", self.heartbeat_s))
            if answer["action"] == "exit":
                log.info("Leaving: %s", answer.get("reason", ""))
                return 0
            if answer["action"] == "work":
                self._work(answer["lease"], answer["work"])
            else:
                self._pause(float(answer.get("retry_s", 2)))
        log.info("Leaving: %s", "this VM is preempted" if self.preempted.is_set() else "worker-api says so")
        return self.exit_code

    def _work(self, lease: dict, raw_work: dict) -> None:
        lease = {key: lease[key] for key in ("run", "stream", "epoch")}
        control = Control()
        self.in_hand = (lease, control)
        log.info("Leased stream %s of run %s, epoch %s", lease["stream"], lease["run"], lease["epoch"])
        try:
            outcome = self._in_thread(lambda: self._extract(lease, raw_work, control), control) or "preempted"
            failure = None
        except LeaseLost:
            log.warning("The lease of stream %s of run %s is lost; leaving it", lease["stream"], lease["run"])
            self.in_hand = None
            return
        except Failure as error:
            outcome, failure = "failed", {"kind": error.kind, "reason": error.reason[:_REASON_CHARS]}
            log.error("%s", error.reason)
        except Exception as error:
            reason = f"Failed to extract stream {lease['stream']}: {type(error).__name__}: {error}"
            outcome, failure = "failed", {"kind": "infrastructure", "reason": reason[:_REASON_CHARS]}
            log.exception("Failed to extract stream %s of run %s", lease["stream"], lease["run"])
        self._release(lease, outcome, failure, control)

    def _extract(self, lease: dict, raw_work: dict, control: Control) -> str:
        work = parse_work(lease, raw_work)
        bucket = Bucket(self.bucket.client, work.bucket, control.check_lease)
        # One folder per lease: an upload of a lost lease never meets the files of the next lease.
        folder = os.path.join(self.identity.home, "work", f"{work.run}-{work.stream}-e{work.epoch}")
        try:
            model, reader = self._load(work, bucket, control)
            return extract(work, model, reader, bucket, folder, control)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _load(self, work: Work, bucket: Bucket, control: Control) -> tuple[Model, Reader]:
        """Keeps the model between streams of one run, and its weights for other runs that use the same weights."""
        if self.loaded_for != (work.run, work.spec):
            control.phase = "loading"
            previous, self.model, self.loaded, self.loaded_for = self.model, None, None, None
            files = find_files(work.spec, self.identity.home, bucket, work.run, self.hub)
            config, _ = read_config(work.spec, files.folder)
            # Before the weights, which take minutes: a tokenizer that cannot be used fails at once.
            self.reader = make_reader(files.folder, work.spec, config.vocab_size, config.max_positions)
            self.model = load_model(work.spec, files, log.info, previous)
            self.loaded = {"model": work.spec.model, "spec_hash": work.spec_hash}
            self.loaded_for = (work.run, work.spec)
            log.info("Loaded %s (%s)", work.spec.model, self.model.fingerprint)
        assert self.model is not None and self.reader is not None
        return self.model, self.reader

    def _release(self, lease: dict, outcome: str, failure: dict | None, control: Control) -> None:
        log.info("Releasing stream %s of run %s: %s", lease["stream"], lease["run"], outcome)
        try:
            if self.preempted.is_set():
                self.api.release(lease, outcome, failure, control.progress(), _RELEASE_S)
            else:
                self._in_thread(lambda: self.api.release(lease, outcome, failure, control.progress(), 600))
        except LeaseLost:
            log.warning("The lease was lost before it could be released")
        except OSError as error:
            log.warning("Failed to release: %s; the lease will expire", error)
        finally:
            self.in_hand = None

    def _in_thread(self, call, control: Control | None = None):
        """Runs `call` on a thread, so that the main thread receives signals; None when a preemption ends the wait."""
        result: dict = {}

        def run() -> None:
            try:
                result["value"] = call()
            except BaseException as error:  # raised again below
                result["error"] = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive() and not self.preempted.is_set() and not (control is None and self.exiting.is_set()):
            thread.join(0.1)
        if thread.is_alive() and control:
            control.request("flush")
            thread.join(_FLUSH_S)
        if "error" in result:
            raise result["error"]
        return result.get("value")

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.preempted.is_set() and not self.exiting.is_set():
            time.sleep(0.05)

    def _heartbeats(self) -> None:
        """Reports this worker to worker-api and follows its answers. Waits while worker-api does not answer."""
        while True:
            lease, control = self.in_hand or (None, None)
            try:
                progress = control.progress() if control else None
                answer = self.api.heartbeat(control.phase if control else "idle", lease, progress)
                self.heartbeat_s = float(answer.get("heartbeat_s") or self.heartbeat_s)
                self._obey(answer, control)
            except LeaseLost:
                if control:
                    control.request("stop")
            except Refused as error:
                log.error("%s", error)
                self.exit_code = 1
                self.exiting.set()
                if control:
                    control.request("stop")
            except OSError as error:
                log.warning("Failed to send a heartbeat: %s", error)
            except Exception:  # any error: without heartbeats the VM counts as dead
                log.exception("Failed to send a heartbeat: unexpected error")
            time.sleep(self.heartbeat_s)

    def _obey(self, answer: dict, control: Control | None) -> None:
        action = answer["action"]
        if action == "exit":
            self.exiting.set()
        if control and action in ("drain", "stop", "exit"):
            log.info("Told to %s: %s", action, answer.get("reason", ""))
            control.request("drain" if action == "drain" else "stop")

    def _watch_preemption(self) -> None:
        while not self.preempted.is_set():
            try:
                if is_preempted():
                    self.preempted.set()
                    log.warning("This VM is being preempted")
            except Exception:  # any error: a notice that the agent misses costs all batches that are not stored
                log.exception("Failed to ask whether this VM is being preempted")
            time.sleep(1)


def main() -> int:
    shipper = set_up_logging()
    agent = Agent(load_identity(), shipper)

    def on_signal(number: int, _frame: object) -> None:
        agent.preempted.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    name = log_name(agent.identity.worker, agent.identity.incarnation)
    shipper.start(agent.logs, name)
    shutil.rmtree(os.path.join(agent.identity.home, "work"), ignore_errors=True)
    try:
        code = agent.run()
    except Refused as error:
        log.error("%s", error)
        code = 1
    except Exception:
        log.exception("Failed to run the agent: unexpected error")
        code = 1
    shipper.ship(agent.logs, name)
    return code


if __name__ == "__main__":
    status = main()
    # Threads may still wait for a device or a socket. An exit at once finishes none of their work.
    os._exit(status)
