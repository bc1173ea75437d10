"""Orders of the control plane beside the lease: the source of the pool, and commands for this host."""

import importlib.metadata
import sys

from .jobs.prepared import Prepared, SourceFailed


class Orders:
    def __init__(self, identity, api, bucket, user_finder):
        self.identity = identity

    def take(self, answer: dict) -> None:
        pass

    def report(self) -> dict | None:
        return None

    def attach(self, runner) -> None:
        pass

    def detach(self) -> None:
        pass

    def prepare(self, order: dict) -> Prepared:
        if order["source"] is not None:
            raise SourceFailed("source", "Failed to prepare the source: this worker cannot fetch sources")
        ran: dict = dict.fromkeys(("bundle", "worker_bundle", "repo", "commit", "jax_version", "environment"))
        return Prepared(sys.executable, None, ran | {"jax_version": importlib.metadata.version("jax")}, {})
