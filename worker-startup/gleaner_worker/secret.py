"""One secret from Secret Manager, read with the VM's own rights, and returned to the caller alone."""

import base64
import binascii
import os
import re
import time
from collections.abc import Callable

import google.auth.credentials
import google.auth.exceptions
import google.auth.transport.requests
import google_crc32c
import requests

from .failures import Failure
from .waits import wait

GIVE_UP_AFTER_S = 120.0
FIRST_WAIT_S = 0.25
_NAME = re.compile(r"(projects/[a-z0-9][a-z0-9.:-]{0,62}/secrets/[A-Za-z0-9_-]{1,255})(/versions/[A-Za-z0-9_-]{1,63})?")
_TIMEOUT_S = (10, 30)
_MAX_BYTES = 64 << 10
_TRANSIENT = (408, 429, 500, 502, 503, 504)


def is_secret_name(text: str) -> bool:
    """projects/P/secrets/S, or projects/P/secrets/S/versions/V; without a version, the latest."""
    return _NAME.fullmatch(text) is not None


def read_token(
    name: str,
    credentials: google.auth.credentials.Credentials,
    check: Callable[[], None],
    setting: str = "GLEANER_HF_TOKEN_SECRET",
) -> str:
    """The secret `name` as a token: one word of printable ASCII. setting: the setting of the deployment that names it.

    Raises Failure naming the secret and the remedy, never a part of the secret. `check` is called between attempts and
    may raise.
    """
    match = _NAME.fullmatch(name)
    if not match:
        # The message leaves the name out: an operator may have put the token itself there.
        raise Failure(
            "model",
            f"Failed to read the token's secret: its name is not projects/P/secrets/S[/versions/V]; correct {setting}",
        )
    version = match[1] + (match[2] or "/versions/latest")
    give_up, wait_s = time.monotonic() + GIVE_UP_AFTER_S, FIRST_WAIT_S
    while True:
        check()
        data, cause = _access(version, credentials, setting)
        if data is not None:
            return _as_token(version, data)
        if time.monotonic() + wait_s > give_up:
            raise Failure(
                "infrastructure",
                f"Failed to read the secret {version}: {cause}; gave up after {GIVE_UP_AFTER_S:.0f} s; "
                "check the network of this VM",
            )
        wait(wait_s, check)
        wait_s = min(wait_s * 2, 8.0)


def _access(version: str, credentials: google.auth.credentials.Credentials, setting: str) -> tuple[bytes | None, str]:
    """The secret's bytes, or None and the cause of a transient error."""
    endpoint = os.environ.get("SECRETMANAGER_EMULATOR_HOST", "https://secretmanager.googleapis.com").rstrip("/")
    url = f"{endpoint}/v1/{version}:access"
    headers: dict[str, str] = {}
    # `from None` throughout: the errors hold requests and answers, which must not reach a traceback in the log.
    try:
        credentials.before_request(google.auth.transport.requests.Request(), "GET", url, headers)
        response = requests.get(url, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False)
    except google.auth.exceptions.TransportError:
        return None, "this VM gets no access token"
    except google.auth.exceptions.GoogleAuthError:
        raise Failure(
            "infrastructure",
            f"Failed to read the secret {version}: this VM has no service account; "
            "create the VM with the worker's service account",
        ) from None
    except requests.RequestException as error:
        return None, f"Secret Manager does not answer ({type(error).__name__})"
    if response.status_code in _TRANSIENT:
        return None, f"Secret Manager answers {response.status_code}"
    if response.status_code != 200:
        raise Failure("model", f"Failed to read the secret {version}: {_remedy(response.status_code, setting)}")
    try:
        payload = response.json()["payload"]
        data = base64.b64decode(payload["data"], validate=True)
        checksum = int(payload["dataCrc32c"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None, "Secret Manager's answer holds no secret with a checksum"
    if google_crc32c.value(data) != checksum:
        return None, "its bytes do not match their checksum"
    return data, ""


def _remedy(status: int, setting: str) -> str:
    if status in (401, 403):
        return (
            f"Secret Manager answers {status}; give the worker's service account the role "
            "roles/secretmanager.secretAccessor on it"
        )
    if status == 404:
        return f"there is no such secret or version; create it, or correct {setting}"
    if status == 400:
        return "that version is disabled or destroyed; add a new one"
    return f"Secret Manager answers {status}; send the work again"


def _as_token(version: str, data: bytes) -> str:
    token = data.strip()
    if not token or len(token) > _MAX_BYTES or not all(0x21 <= byte <= 0x7E for byte in token):
        raise Failure(
            "model",
            f"Failed to use the secret {version} as a token: its {len(data)} bytes are not one word of printable "
            "ASCII; store the token itself and nothing else",
        )
    return token.decode("ascii")
