"""The code that runs here: the worker bundle, the locked packages and the version of JAX."""

import hashlib
import importlib.metadata
import os
import re
import sys

_BUNDLE = re.compile(r"/bundle-([0-9a-f]{64})/")


def worker_bundle() -> str | None:
    """The sha256 of the bundle that holds this file, or None outside of a bundle."""
    match = _BUNDLE.search(__file__)
    return match[1] if match else None


def locked_digest() -> str:
    """The sha256 of the lock file of this environment; in a test without a lock file, of the environment's path."""
    path = os.path.join(sys.prefix, "lock-sha256")
    if os.path.exists(path):
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    return hashlib.sha256(sys.prefix.encode()).hexdigest()


def code_metadata() -> dict[str, str]:
    """The code that produced a shard, as custom metadata of its object."""
    return {
        "bundle": worker_bundle() or "none",
        "environment": locked_digest(),
        "jax_version": importlib.metadata.version("jax"),
    }
