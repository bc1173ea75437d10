"""The metadata server of the VM: the identity of this worker, the tokens that prove it, and the notices of its end."""

import http.client
import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import google.auth.credentials
import google.auth.exceptions

from ..model.files.hub import is_endpoint
from ..source.private import is_host

_ATTRIBUTES = (
    "gleaner-worker",
    "gleaner-incarnation",
    "gleaner-ticket",
    "gleaner-api",
    "gleaner-bucket",
    "gleaner-logs-bucket",
    "agent-worker-number",
)
_ENDPOINT = "gleaner-hf-endpoint"
_GIT = "gleaner-git-host"
_EGRESS = "gleaner-job-egress"
# A maintenance is announced hours before as PENDING. A VM that moves to another host keeps its work.
_ONGOING = re.compile(r"maintenance[_-]?status\W{1,6}ONGOING", re.IGNORECASE)
_MAINTENANCE = "stops for maintenance of its host"
_DIRECT = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
)  # the server belongs to this machine, so requests never use a proxy


@dataclass(frozen=True)
class Identity:
    """This worker, as the metadata of its VM describe it."""

    worker: str
    incarnation: int
    host: int
    ticket: str  # proves at the first hello that this host belongs to the incarnation
    api: str
    bucket: str
    logs_bucket: str
    project: str
    home: str
    hf_endpoint: str | None = None  # the hub of the models; None for the default hub
    git_host: str | None = None  # the host of private repositories
    jobs_have_network: bool = True


def load_identity(env: Mapping[str, str] = os.environ) -> Identity:
    """Reads the identity of this worker; raises SystemExit naming every missing or wrong attribute at once."""
    values, problems = {}, []
    for name in _ATTRIBUTES:
        values[name] = _attribute(name)
        if not values[name]:
            problems.append(f"metadata attribute {name} is missing")
        elif name in ("gleaner-incarnation", "agent-worker-number") and not values[name].isdigit():
            problems.append(f"metadata attribute {name} is {values[name]!r}, not a number")
    endpoint, git, egress = _attribute(_ENDPOINT), _attribute(_GIT), _attribute(_EGRESS) or "nat"
    if endpoint and not is_endpoint(endpoint):
        problems.append(f"metadata attribute {_ENDPOINT} is {endpoint!r:.200}, not an https:// address")
    if git and not is_host(git):
        problems.append(f"metadata attribute {_GIT} is {git!r:.200}, not a host")
    if egress not in ("nat", "none"):
        problems.append(f"metadata attribute {_EGRESS} is {egress!r:.200}, not nat or none")
    if values["gleaner-api"] and not is_endpoint(values["gleaner-api"]):
        problems.append(f"metadata attribute gleaner-api is {values['gleaner-api']!r:.200}, not an https:// address")
    if problems:
        # A missing worker number never counts as worker 0: two workers would write under one name.
        raise SystemExit(f"Failed to start the agent: {'; '.join(problems)}; create the VM again with them set")
    return Identity(
        worker=values["gleaner-worker"],
        incarnation=int(values["gleaner-incarnation"]),
        host=int(values["agent-worker-number"]),
        ticket=values["gleaner-ticket"],
        api=values["gleaner-api"],
        bucket=values["gleaner-bucket"],
        logs_bucket=values["gleaner-logs-bucket"],
        project=get("project/project-id").strip(),
        home=env.get("GLEANER_HOME", "/opt/gleaner"),
        hf_endpoint=endpoint or None,
        git_host=git or None,
        jobs_have_network=egress == "nat",
    )


def load_secret(home: str) -> str:
    """The secret of this host, which every request to worker-api carries. Raises SystemExit without one."""
    path = os.path.join(home, "host-secret")
    try:
        with open(path, encoding="ascii") as file:
            secret = file.read().strip()
    except (OSError, ValueError) as error:
        raise SystemExit(f"Failed to start the agent: no secret of this host: {error}; boot the VM again") from error
    if not re.fullmatch(r"[0-9a-f]{64}", secret):
        raise SystemExit(f"Failed to start the agent: {path} is not 64 hexadecimal digits; boot the VM again")
    return secret


def _attribute(name: str) -> str:
    try:
        return get(f"instance/attributes/{name}").strip()
    except FileNotFoundError:
        return ""


def get(path: str, timeout_s: float = 10) -> str:
    """One value; raises FileNotFoundError where the server lacks it, OSError where the server does not answer."""
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(f"http://{host}/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"})
    try:
        with _DIRECT.open(request, timeout=timeout_s) as response:
            return response.read().decode("utf-8")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise FileNotFoundError(f"the metadata server has no {path}") from error
        raise
    except http.client.HTTPException as error:
        raise OSError(f"the metadata server's answer ended early: {type(error).__name__}: {error}") from error


def host_names() -> dict[str, str]:
    """Name and address of this host, for people. An unknown value is left out."""
    names = {"hostname": socket.gethostname()[:253]}
    try:
        names["address"] = get("instance/network-interfaces/0/ip").strip()[:45]
    except OSError:
        pass
    return {key: value for key, value in names.items() if re.fullmatch(r"[\x21-\x7e]+", value)}


def ending_notice() -> str | None:
    """Why this VM ends within a minute: a preemption, or a maintenance. None without a notice or an answer."""
    if _notice("preempted") == "TRUE":
        return "is preempted"
    if _notice("maintenance-event").startswith("TERMINATE"):
        return _MAINTENANCE
    return _MAINTENANCE if _ONGOING.search(_notice("upcoming-maintenance?recursive=true&alt=json")) else None


def _notice(name: str) -> str:
    try:
        return get(f"instance/{name}", timeout_s=2).strip()
    except OSError:  # also a key that the server has only before a maintenance
        return ""


class IdentityTokens:
    """The token that proves this worker to worker-api; kept for 600 s, because each costs the server a signature."""

    def __init__(self, audience: str):
        self._path = (
            f"instance/service-accounts/default/identity?audience={urllib.parse.quote(audience, safe='')}&format=full"
        )
        self._lock = threading.Lock()
        self._token, self._fetched = "", 0.0

    def get(self, fresh: bool = False, timeout_s: float = 10) -> str:
        """`fresh` replaces the kept token. Raises OSError where the server does not answer."""
        with self._lock:
            if fresh or not self._token or time.monotonic() - self._fetched > 600:
                self._token, self._fetched = get(self._path, timeout_s).strip(), time.monotonic()
            return self._token


class Credentials(google.auth.credentials.Credentials):
    """The service account of this VM."""

    def refresh(self, request) -> None:
        try:
            answer = json.loads(get("instance/service-accounts/default/token"))
        except OSError as error:
            raise google.auth.exceptions.TransportError(error) from error
        self.token = answer["access_token"]
        # google-auth compares with a UTC time without a time zone.
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=answer["expires_in"])
