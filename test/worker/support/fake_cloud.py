"""The metadata server of a VM and worker-api on one port, for a real agent. A test scripts the answers."""

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

from local_server import Handler, LocalServer

SECRET = "5e" * 32  # of the host


def in_an_hour():
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def boot(home):
    """Leaves the secret of the host in its home, as startup.sh does."""
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "host-secret"), "w", encoding="ascii") as file:
        file.write(f"{SECRET}\n")


class FakeCloud:
    def __init__(self, worker="tpu-us-central1-a-0", bucket="bkt"):
        self.attributes = {
            "agent-worker-number": "0",
            "gleaner-worker": worker,
            "gleaner-incarnation": "3",
            "gleaner-bucket": bucket,
            "gleaner-logs-bucket": bucket,
            "accelerator-type": "v5litepod-1",
            "gleaner-ticket": "T" * 43,
        }
        self.preempted = False
        self.maintenance_event: str | None = "NONE"
        self.maintenance_status: str | None = None
        self.identity_token: str | None = "an.identity.token"
        self.read: list[str] = []  # paths of requests to the metadata server
        self.asked: list[dict] = []  # the bodies of requests to worker-api, without hello
        self.hellos: list[dict] = []  # the bodies of hello
        self.tokens: list[dict | None] = []  # the leases of requests for a token, which `asked` leaves out
        self.given = lambda lease: {}  # the secrets of a lease, in the answers of worker-api
        self.audiences: set[str] = set()  # of identity tokens
        self.secrets: set[str | None] = set()  # of all requests
        self.leases: list[dict] = []  # answers to `lease`, in turn; then "exit"
        self.action = lambda body: "continue"  # of the answer to a heartbeat
        self.heartbeat_s = 0.1
        self.on_heartbeat = lambda body: {
            "action": self.action(body),
            "reason": "a reason of the test",
            "lease_expires_at": None,
            "heartbeat_s": self.heartbeat_s,
        }
        self.status = lambda body: 200  # bytes are sent as the answer, for malformed and broken answers
        self.refusal = {"error": "a fault of the test"}
        self.changed = threading.Condition()
        self._server = LocalServer(self.handler())
        self.host, self.close = self._server.host, self._server.close
        self.attributes["gleaner-api"] = f"http://{self.host}/worker-api"

    def wait(self, condition, timeout_s=600):
        """Waits until condition(asked) is true."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.asked), timeout_s), (
                f"the condition stayed false for {timeout_s} s; the last requests: {self.asked[-3:]}"
            )

    def releases(self):
        return [body for body in self.asked if body["action"] == "release"]

    def finishes(self):
        return [body for body in self.asked if body["action"] == "finish"]

    def _answer(self, body):
        match body["action"]:
            case "lease":
                return self.leases.pop(0) if self.leases else {"action": "exit", "reason": "nothing left to do"}
            case "heartbeat":
                return self.on_heartbeat(body)
            case "token":
                self.tokens.append(body["lease"])
                return {"action": "token", "access_token": f"token-{len(self.tokens)}", "expires_at": in_an_hour()}
            case "secrets":
                return {"action": "secrets", "secrets": self.given(body["lease"])}
            case _:
                return {"action": "continue", "reason": ""}

    def _metadata(self, path):
        if path.startswith("instance/attributes/"):
            return self.attributes.get(path.removeprefix("instance/attributes/"))
        return {
            "instance/preempted": self.preempted if isinstance(self.preempted, bytes) else str(self.preempted).upper(),
            "instance/maintenance-event": self.maintenance_event,
            "instance/upcoming-maintenance": self.maintenance_status
            and json.dumps({"canReschedule": "FALSE", "maintenanceStatus": self.maintenance_status}),
            "project/project-id": "local",
            "instance/service-accounts/default/token": '{"access_token": "t", "expires_in": 3599}',
            "instance/service-accounts/default/identity": self.identity_token,
        }.get(path)

    def handler(cloud):
        class CloudHandler(Handler):
            def do_GET(self):
                assert self.headers["Metadata-Flavor"] == "Google"
                path, _, query = self.path.removeprefix("/computeMetadata/v1/").partition("?")
                cloud.audiences.update(parse_qs(query).get("audience", []))
                cloud.read.append(path)
                value = cloud._metadata(path)
                if isinstance(value, bytes):
                    return self.wfile.write(value)
                self.send(404 if value is None else 200, (value or "not found").encode())

            def do_POST(self):
                body = json.loads(self.read_body())
                assert self.headers["Authorization"] == "Bearer an.identity.token"
                with cloud.changed:
                    status = cloud.status(body)
                    answer = cloud._answer(body) if status == 200 else cloud.refusal
                    if body["action"] != "token":
                        (cloud.hellos if body["action"] == "hello" else cloud.asked).append(body)
                    cloud.secrets.add(self.headers["X-Gleaner-Secret"])
                    cloud.changed.notify_all()
                if isinstance(status, bytes):
                    return self.wfile.write(status)
                self.send(status, json.dumps(answer).encode())

        return CloudHandler
