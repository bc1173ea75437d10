"""Requests to worker-api: one POST per question, retried while the network or the service is away."""

import http.client
import json
import logging
import random
import threading
import time
import urllib.error
import urllib.request

from .failures import LeaseLost
from .metadata import Identity, IdentityTokens, host_names

log = logging.getLogger(__name__)

# Statuses of a service that is set up wrongly or replaced at the moment. They may pass, and the log names each once.
_SHUT_OUT = (301, 302, 303, 307, 308, 401, 403, 404)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Turns every redirect into an HTTPError, because the next request would carry the token and the secret."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


class Refused(Exception):
    """worker-api rejects the question of this worker, or its secret: a retry cannot repair that."""


class WorkerApi:
    def __init__(self, identity: Identity, secret: str):
        self._identity = identity
        self._secret = secret
        self._tokens = IdentityTokens(identity.api)
        self._status = 200  # of the latest answer

    def hello(self, give_up_after_s: float = float("inf")) -> dict:
        """Binds the secret of this host to its incarnation. A repeated hello with the same secret changes nothing."""
        return self._ask({"action": "hello", "ticket": self._identity.ticket} | host_names(), give_up_after_s)

    def lease(self, loaded: dict | None) -> dict:
        return self._ask({"action": "lease", "loaded": loaded}, give_up_after_s=float("inf"))

    def heartbeat(
        self, phase: str, lease: dict | None, progress: dict | None, source_report: dict | None = None
    ) -> dict:
        """One attempt, because the next heartbeat follows soon. Raises OSError without an answer."""
        question = {"action": "heartbeat", "phase": phase, "lease": lease, "progress": progress}
        if source_report is not None:
            question["source_report"] = source_report
        return self._ask(question, give_up_after_s=0)

    def release(
        self, lease: dict, outcome: str, failure: dict | None, progress: dict, give_up_after_s: float = 120
    ) -> None:
        """Gives the lease back. Raises OSError without an answer in time; the lease then expires."""
        self._ask(
            {
                "action": "release",
                "lease": lease,
                "outcome": outcome,
                "failure": failure,
                "progress": progress,
            },
            give_up_after_s,
        )

    def finish(self, lease: dict, ending: dict, give_up_after_s: float = 120) -> None:
        """Ends an attempt of a job. `ending`: the other fields of the request. Raises as `release` does."""
        self._ask({"action": "finish", "lease": lease} | ending, give_up_after_s)

    def source(self, give_up_after_s: float = 0) -> dict:
        """The source and environment of the worker's pool."""
        return self._ask({"action": "source"}, give_up_after_s)

    def exec(self, exec_id: str, give_up_after_s: float = 0) -> dict:
        """A command that a heartbeat named."""
        return self._ask({"action": "exec", "exec": exec_id}, give_up_after_s)

    def exec_end(
        self, exec_id: str, outcome: str, exit_code: int | None, error: str | None, give_up_after_s: float = 120
    ) -> None:
        self._ask(
            {"action": "exec-end", "exec": exec_id, "outcome": outcome, "exit_code": exit_code, "error": error},
            give_up_after_s,
        )

    def _ask(self, question: dict, give_up_after_s: float) -> dict:
        """Raises LeaseLost on 409, Refused on 400 and on a 403 of worker-api, OSError at the end of the retries.

        After a 403 of worker-api one hello follows, because a restored database may not know the secret. It ends in the
        time of the question.
        Other 4xx come from Cloud Run, for example while the function or its invoker is replaced, and they pass.
        worker-api tells an unwanted worker to exit. A worker that Cloud Run keeps out counts as silent.
        """
        who = self._identity
        body = json.dumps(question | {"worker": who.worker, "incarnation": who.incarnation, "host": who.host}).encode()
        give_up, wait_s, fresh, bound = time.monotonic() + give_up_after_s, 0.5, False, False
        while True:
            try:
                answer = self._post(body, fresh)
                self._status = 200
                return answer
            except urllib.error.HTTPError as error:
                text = _text_of(error)
                if error.code == 409:
                    raise LeaseLost(text) from error
                if error.code == 401 and not fresh:
                    fresh = True
                    continue
                before, self._status = self._status, error.code
                what = f"Failed to {question['action']}: worker-api answered {error.code}: {text}"
                if error.code == 403 and _says_exit(text) and question["action"] != "hello" and not bound:
                    bound = self.hello(give_up - time.monotonic())["action"] == "continue"
                    if bound:
                        continue
                if error.code == 400 or (error.code == 403 and _says_exit(text)):
                    raise Refused(what) from error
                if error.code in _SHUT_OUT and error.code != before:
                    log.error("%s; retrying until it accepts this worker", what)
                problem: OSError = error
            except OSError as error:  # refused, reset, timed out, no route
                problem = error
            if time.monotonic() + wait_s > give_up:
                raise problem
            log.warning("Failed to %s: %s; trying again in %.1f s", question["action"], problem, wait_s)
            threading.Event().wait(wait_s * random.uniform(0.8, 1.2))
            wait_s = min(wait_s * 2, 15)

    def _post(self, body: bytes, fresh_token: bool) -> dict:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._tokens.get(fresh_token)}",
            "X-Gleaner-Secret": self._secret,
        }
        request = urllib.request.Request(self._identity.api, body, headers)
        try:
            with _OPENER.open(request, timeout=30) as response:
                text = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"worker-api's answer broke off: {type(error).__name__}: {error}") from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OSError(f"worker-api answered with something that is not JSON: {text[:100]!r}") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("action"), str):
            raise OSError(f"worker-api answered without an action: {text[:100]!r}")
        return answer


def _says_exit(text: str) -> bool:
    """True for an error of worker-api itself. The body of an error of Cloud Run is an HTML page."""
    try:
        return json.loads(text)["action"] == "exit"
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _text_of(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as broken:  # the status has arrived and is enough
        return f"({type(broken).__name__}: {broken})"
