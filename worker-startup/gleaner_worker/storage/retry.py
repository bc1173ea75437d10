"""Calls to Cloud Storage that are repeated after transient errors, and errors that name the remedy."""

import http.client
import random
import time
from collections.abc import Callable
from typing import TypeVar

import google.auth.exceptions
import requests
import urllib3.exceptions
from google.api_core import exceptions as api
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption

from ..failures import Damaged, Failure, Unreachable
from ..waits import wait
from .lease_credentials import LeaseCredentials

GIVE_UP_AFTER_S = 600.0
FIRST_WAIT_S = 0.25
# The network seldom damages a download. A stored object that is damaged arrives damaged every time.
_DOWNLOADS_OF_DAMAGED = 3
_TRANSIENT = (
    api.TooManyRequests,
    api.ServerError,
    ConnectionError,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    google.auth.exceptions.TransportError,
    # Errors of a response body that ends early. The client reads the body without requests, so urllib3 raises them.
    urllib3.exceptions.ProtocolError,
    urllib3.exceptions.TimeoutError,
    urllib3.exceptions.SSLError,
    urllib3.exceptions.PoolError,
    http.client.HTTPException,
)
T = TypeVar("T")


def retry(client: storage.Client, bucket: str, action: str, call: Callable[[], T], check: Callable[[], None]) -> T:
    """Calls `call` until it succeeds; waits after transient errors, and renews a token of a lease once after 403.

    check: called before each attempt and while waiting; it may raise.

    Raises FileNotFoundError for 404, Damaged after a few downloads with a wrong checksum, Unreachable after
    GIVE_UP_AFTER_S, and Failure("infrastructure") for every other error.
    """
    give_up = time.monotonic() + GIVE_UP_AFTER_S
    wait_s = FIRST_WAIT_S
    damaged = 0
    has_renewed = False
    while True:
        check()
        try:
            return call()
        except api.Forbidden as error:
            if has_renewed or not forget_token(client):
                raise _permanent(action, error, client, bucket) from error
            has_renewed = True
            continue
        except api.NotFound as error:
            if "bucket does not exist" in str(error).lower():
                raise Failure("infrastructure", f"Failed to {action}: create the bucket {bucket}") from error
            raise FileNotFoundError(f"Failed to {action}: the object does not exist") from error
        except DataCorruption as error:
            damaged += 1
            if damaged == _DOWNLOADS_OF_DAMAGED:
                raise Damaged(
                    "infrastructure",
                    f"Failed to {action}: its bytes differ from its checksum, {damaged} times; upload it again",
                ) from error
        except (*_TRANSIENT, api.GoogleAPICallError, google.auth.exceptions.GoogleAuthError) as error:
            if not (isinstance(error, _TRANSIENT) or getattr(error, "code", None) == http.client.REQUEST_TIMEOUT):
                raise _permanent(action, error, client, bucket) from error
            if time.monotonic() + wait_s > give_up:
                raise Unreachable(
                    "infrastructure",
                    f"Failed to {action}: {brief(error)}; gave up after {GIVE_UP_AFTER_S:.0f} s; "
                    "check the network of this VM",
                ) from error
        # Workers that fail together try again at different times.
        wait(wait_s * random.uniform(0.5, 1), check)
        wait_s = min(wait_s * 2, 15.0)


def forget_token(client: storage.Client) -> bool:
    """Makes the next request ask for a token of the lease. False for other credentials."""
    credentials = client._credentials
    if isinstance(credentials, LeaseCredentials):
        credentials.forget()
    return isinstance(credentials, LeaseCredentials)


def _permanent(action: str, error: Exception, client: storage.Client, bucket: str) -> Failure:
    advice = ""
    if isinstance(error, api.Forbidden):
        owner = "worker-api's" if isinstance(client._credentials, LeaseCredentials) else "the worker's"
        advice = f"; grant {owner} service account this permission on {bucket}"
    elif isinstance(error, (api.Unauthorized, google.auth.exceptions.GoogleAuthError)):
        advice = "; check that the worker's service account exists and that the node runs as this account"
    return Failure("infrastructure", f"Failed to {action}: {brief(error)}{advice}")


def brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
