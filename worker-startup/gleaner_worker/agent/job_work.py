"""Work on jobs: the order of an attempt, also across a restart of the agent that releases the chips."""

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from ..jobs.bucket_address import BucketAccess
from ..jobs.cluster import Cluster, tpu_env_of_instance
from ..jobs.runner import JobRunner
from ..jobs.user import JobUser
from ..storage.lease_credentials import LeaseCredentials
from ..storage.objects import Bucket
from .api import WorkerApi
from .metadata import Identity, get
from .orders import Orders

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobOrder:
    """The order to run one attempt of a job."""

    lease: dict  # {"job", "epoch"}
    job: dict  # as worker-api describes it, with `slice`: the hosts that run the attempt together


class JobWork:
    """The orders and runners of jobs."""

    def __init__(
        self,
        identity: Identity,
        open_bucket: Callable[[dict], Bucket],
        orders: Orders,
        find_user: Callable[[], JobUser],
        api: WorkerApi,
    ):
        self._identity, self._open_bucket, self._orders, self._find_user = identity, open_bucket, orders, find_user
        self._api = api
        self._path = os.path.join(identity.home, "order")

    def new_order(self, answer: dict) -> JobOrder:
        """The order of a new lease. If this process holds the chips, restarts the agent and never returns."""
        job = answer["job"] | {"slice": answer["slice"]}
        order = JobOrder({key: answer["lease"][key] for key in ("job", "epoch")}, job)
        if _holds_chips():
            log.info("Restarting the agent, because it holds the chips that job %s needs", order.lease["job"])
            self._restart(order)
        return order

    def pop_stored_order(self) -> JobOrder | None:
        """Returns and deletes the order that the agent stored before its restart; None without an order."""
        try:
            with open(self._path, encoding="utf-8") as file:
                order = JobOrder(**json.load(file))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            log.warning("Failed to read %s: %s; the lease of its job will expire", self._path, error)
            order = None
        os.unlink(self._path)
        return order

    def runner(self, order: JobOrder) -> JobRunner:
        bucket = self._open_bucket(order.lease)
        epoch, home = int(order.lease["epoch"]), self._identity.home
        report = partial(self._api.checkpoint, order.lease)
        user, secrets = self._find_user, partial(self._api.secrets, order.lease)
        prepare, settings = self._orders.prepare, _machine_settings
        credentials = LeaseCredentials(lambda: self._api.token(order.lease, "job"))
        access = BucketAccess(credentials, self._identity.project, os.environ.get("STORAGE_EMULATOR_HOST"))
        return JobRunner(order.job, epoch, home, bucket, prepare, user, settings, report, secrets, access)

    def _restart(self, order: JobOrder) -> None:
        """The lease stays valid: the new process sends heartbeats within seconds."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(asdict(order), file)
        os.execv(sys.executable, [sys.executable, "-m", "gleaner_worker.agent"])


def _holds_chips() -> bool:
    """True after JAX has opened its devices in this process; no other process can open them until it ends."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and getattr(bridge, "backends_are_initialized", lambda: True)()


def _machine_settings(cluster: Cluster) -> dict[str, str]:
    try:
        return cluster.tpu_variables(get("instance/attributes/tpu-env"))
    except FileNotFoundError:  # an instance of Compute Engine, or a machine without a TPU
        if os.environ.get("JAX_PLATFORMS") != "tpu":
            return {}
    return cluster.tpu_variables(tpu_env_of_instance(get("instance/attributes/accelerator-type").strip()))
