"""Credentials of one lease: tokens of worker-api that are good for the objects of the lease alone."""

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import google.auth.credentials
import google.auth.exceptions


class LeaseCredentials(google.auth.credentials.Credentials):
    """A token that the client renews some minutes before its end, and once after a refusal.

    ask: requests a token; returns the answer of worker-api. May raise OSError without an answer, and LeaseLost.
    """

    def __init__(self, ask: Callable[[], dict]):
        super().__init__()
        self._ask = ask
        self._lock = threading.Lock()
        self._renewed_at = float("-inf")

    def refresh(self, request) -> None:
        """Asks once for all threads that need a token. Keeps the token until its end while worker-api gives none."""
        began = time.monotonic()
        with self._lock:
            if self._renewed_at > began:
                return
            try:
                answer = self._ask()
            except OSError as error:
                self._keep(str(error))
            else:
                if answer["action"] == "token":
                    self.token = answer["access_token"]
                    # google-auth compares with a UTC time without a time zone.
                    end = datetime.fromisoformat(answer["expires_at"]).astimezone(UTC).replace(tzinfo=None)
                    self.expiry = end  # pyrefly: ignore[bad-override-mutable-attribute]
                    self._renewed_at = time.monotonic()
                else:
                    self._keep(str(answer.get("reason", "")))

    def lasting(self, least_s: float) -> tuple[str, float]:
        """The token and its seconds left, renewed if these are fewer than `least_s`.

        Raises LeaseLost, and TransportError without a token that is still good.
        """
        if self._left_s() < least_s:
            with contextlib.suppress(google.auth.exceptions.TransportError):
                self.refresh(None)
        if self.token is None or self._left_s() <= 0:
            raise google.auth.exceptions.TransportError("worker-api gives no token")
        return self.token, self._left_s()

    def _left_s(self) -> float:
        if self.token is None or self.expiry is None:
            return 0.0
        return (self.expiry - datetime.now(UTC).replace(tzinfo=None)).total_seconds()

    def forget(self) -> None:
        """Makes the next request ask for a token: Cloud Storage has refused this one."""
        self.token = None

    def _keep(self, reason: str) -> None:
        # A fresh token is renewed only after a refusal.
        if self.token_state != google.auth.credentials.TokenState.STALE:
            raise google.auth.exceptions.TransportError(f"worker-api gives no token: {reason}")
