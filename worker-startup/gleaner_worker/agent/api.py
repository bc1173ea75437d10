"""Requests to worker-api: each is one POST, retried while the network or the service is unavailable."""

import http.client
import json
import logging
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from ..failures import Failure, LeaseLost
from ..waits import wait
from .metadata import Identity, IdentityTokens, host_names

log = logging.getLogger(__name__)

# Statuses of a service that is misconfigured or being replaced. They may be transient; the log reports each change.
_REJECTED = (301, 302, 303, 307, 308, 401, 403, 404)
_POST_S, _TOKEN_S = 30.0, 10.0  # socket timeouts of requests to worker-api, and to the metadata server for a token
_LEAST_TIMEOUT_S = 0.1  # of a request whose time is over
_SECRETS_S = 120.0  # of all attempts to read secrets
_FIRST_WAIT_S = 0.5  # before the second attempt; each later wait is twice as long


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Turns every redirect into an HTTPError, because the next request would carry the token and the secret."""

    def redirect_request(self, *_: object) -> None:  # pyrefly: ignore[bad-override]
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


class Refused(Exception):
    """worker-api rejects the request of this worker, or its secret. A retry fails in the same way."""


class WorkerApi:
    """The requests of one host. Every method raises the errors of `_request`."""

    def __init__(self, identity: Identity, secret: str):
        self._identity = identity
        self._secret = secret
        self._tokens = IdentityTokens(identity.api)
        self._status = 200  # of the latest answer

    def hello(self, give_up_after_s: float = float("inf")) -> dict:
        """Binds the secret of this host to its incarnation. A repeated hello with the same secret changes nothing."""
        return self._request({"action": "hello", "ticket": self._identity.ticket} | host_names(), give_up_after_s)

    def lease(self, loaded: dict | None) -> dict:
        """Asks for work. `loaded`: the model in memory and the hash of its spec."""
        return self._request({"action": "lease", "loaded": loaded}, give_up_after_s=float("inf"))

    def heartbeat(
        self,
        phase: str,
        lease: dict | None,
        progress: dict | None,
        source_report: dict | None = None,
        received: dict | None = None,
    ) -> dict:
        """One attempt, because the next heartbeat follows soon. Raises OSError without an answer."""
        request = {"action": "heartbeat", "phase": phase, "lease": lease, "progress": progress}
        if source_report is not None:
            request["source_report"] = source_report
        if received is not None:
            request["received"] = received
        return self._request(request, give_up_after_s=0)

    def release(self, lease: dict, outcome: str, failure: dict | None, progress: dict, give_up_after_s: float) -> None:
        """Ends the lease of a stream. Raises OSError without an answer in time; the lease then expires."""
        ending = {"outcome": outcome, "failure": failure, "progress": progress}
        self._request({"action": "release", "lease": lease} | ending, give_up_after_s)

    def finish(self, lease: dict, ending: dict, give_up_after_s: float) -> None:
        """Ends an attempt of a job. `ending`: the other fields of the request. Raises as `release` does."""
        self._request({"action": "finish", "lease": lease} | ending, give_up_after_s)

    def checkpoint(self, lease: dict, version: dict | None, problem: str | None) -> None:
        """Reports a stored version of the checkpoint of a job, or why none is stored. One attempt, as `heartbeat`."""
        self._request(
            {"action": "checkpoint", "lease": lease, "version": version, "problem": problem}, give_up_after_s=0
        )

    def token(self, lease: dict | None, for_: str = "agent") -> dict:
        """A token for the objects of a lease or of a command; without one, for code and the log of this incarnation.

        for_: `job` for the objects that the process of the leased job may use.
        One attempt, because the request for an object is repeated. Raises as `heartbeat` does.
        """
        return self._request({"action": "token", "lease": lease, "for": for_}, give_up_after_s=0)

    def secrets(self, lease: dict | None, check: Callable[[], None]) -> dict[str, str]:
        """The secrets of a lease; without one, git's token. Raises Failure with the reason, and LeaseLost.

        check: called before the first attempt and during waits; it may raise.
        """
        check()
        try:
            answer = self._request({"action": "secrets", "lease": lease}, _SECRETS_S, check)
        except OSError as error:
            reason = f"Failed to read secrets: {error}; gave up after {_SECRETS_S:.0f} s"
            raise Failure("infrastructure", f"{reason}; read the log of worker-api") from None
        if answer["action"] != "secrets":
            raise Failure("model", f"Failed to read secrets: {answer.get('reason', '')}")
        return answer["secrets"]

    def source(self, give_up_after_s: float) -> dict:
        """The source and environment of the worker's pool."""
        return self._request({"action": "source"}, give_up_after_s)

    def exec(self, exec_id: str, give_up_after_s: float) -> dict:
        """A command that a heartbeat named."""
        return self._request({"action": "exec", "exec": exec_id}, give_up_after_s)

    def exec_end(
        self, exec_id: str, outcome: str, exit_code: int | None, error: str | None, give_up_after_s: float
    ) -> None:
        """Reports the end of a command. Raises as `release` does."""
        self._request(
            {"action": "exec-end", "exec": exec_id, "outcome": outcome, "exit_code": exit_code, "error": error},
            give_up_after_s,
        )

    def _request(self, request: dict, give_up_after_s: float, check: Callable[[], None] = lambda: None) -> dict:
        """Raises LeaseLost on 409, Refused on 400 and on a 403 of worker-api, OSError at the end of the retries.

        give_up_after_s: the time limit of all attempts; 0 for one attempt, limited by its socket timeouts alone.
        check: called during waits; it may raise.
        After a 403 of worker-api one hello follows, because a restored database may lack the secret. The hello shares
        the time limit of the request.
        Other 4xx come from Cloud Run, for example while the function or its invoker is replaced, and are retried.
        worker-api tells an unwanted worker to exit. A worker that Cloud Run rejects counts as silent.
        """
        me = self._identity
        body = json.dumps(request | {"worker": me.worker, "incarnation": me.incarnation, "host": me.host}).encode()
        give_up, wait_s, fresh, bound = time.monotonic() + give_up_after_s, _FIRST_WAIT_S, False, False
        while True:
            try:
                answer = self._post(body, fresh, give_up if give_up_after_s else float("inf"))
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
                message = f"Failed to {request['action']}: worker-api answered {error.code}: {text}"
                if error.code == 403 and _says_exit(text) and request["action"] != "hello" and not bound:
                    bound = self.hello(_time_left(give_up) if give_up_after_s else 0)["action"] == "continue"
                    if bound:
                        continue
                if error.code == 400 or (error.code == 403 and _says_exit(text)):
                    raise Refused(message) from error
                if error.code in _REJECTED and error.code != before:
                    log.error("%s; retrying until worker-api accepts this worker", message)
                problem: OSError = error
            except OSError as error:  # refused, reset, timed out, no route
                problem = error
            if time.monotonic() + wait_s > give_up:
                raise problem
            log.warning("Failed to %s: %s; trying again in %.1f s", request["action"], problem, wait_s)
            wait(wait_s * random.uniform(0.8, 1.2), check)
            wait_s = min(wait_s * 2, 15)

    def _post(self, body: bytes, fresh_token: bool, give_up: float) -> dict:
        token = self._tokens.get(fresh_token, min(_TOKEN_S, _time_left(give_up)))
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {token}",
            "X-Gleaner-Secret": self._secret,
        }
        request = urllib.request.Request(self._identity.api, body, headers)
        try:
            with _OPENER.open(request, timeout=min(_POST_S, _time_left(give_up))) as response:
                text = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"worker-api's answer ended early: {type(error).__name__}: {error}") from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            # `from None`: the error of the parser holds the text, which may hold a token or a secret.
            raise OSError(f"worker-api answered with text that is not JSON{_begin_of(text)}") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("action"), str):
            raise OSError(f"worker-api answered without an action{_begin_of(text)}")
        return answer


def _begin_of(text: bytes) -> str:
    return "" if b"token" in text or b"secrets" in text else f": {text[:100]!r}"


def _time_left(give_up: float) -> float:
    return max(_LEAST_TIMEOUT_S, give_up - time.monotonic())


def _says_exit(text: str) -> bool:
    """True for an error of worker-api itself. The body of an error of Cloud Run is an HTML page."""
    try:
        return json.loads(text)["action"] == "exit"
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _text_of(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as broken:  # the status is enough
        return f"({type(broken).__name__}: {broken})"
