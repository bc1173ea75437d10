"""Secrets that worker-api reads for this host, returned to the caller alone."""

import time
from collections.abc import Callable

from .failures import Failure
from .waits import wait

GIVE_UP_AFTER_S = 120.0
FIRST_WAIT_S = 0.25


class Secrets:
    """The secrets of a lease; without one, git's token. ask: one request to worker-api for the secrets of a lease."""

    def __init__(self, ask: Callable[[dict | None], dict]):
        self._ask = ask

    def read(self, lease: dict | None, check: Callable[[], None]) -> dict[str, str]:
        """Raises Failure with the reason of worker-api or of the network, and LeaseLost. Repeats transient errors.

        check: called between attempts, and may raise.
        """
        give_up, wait_s = time.monotonic() + GIVE_UP_AFTER_S, FIRST_WAIT_S
        while True:
            check()
            try:
                answer = self._ask(lease)
                break
            except OSError as error:
                if time.monotonic() + wait_s > give_up:
                    reason = f"Failed to read secrets: {error}; gave up after {GIVE_UP_AFTER_S:.0f} s"
                    raise Failure("infrastructure", f"{reason}; read the log of worker-api") from None
            wait(wait_s, check)
            wait_s = min(wait_s * 2, 8.0)
        if answer["action"] != "secrets":
            raise Failure("model", f"Failed to read secrets: {answer.get('reason', '')}")
        return answer["secrets"]
