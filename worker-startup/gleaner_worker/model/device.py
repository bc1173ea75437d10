"""JAX as this process uses it: where compiled programs are kept, and how many were made."""

import logging
import os
import threading

import jax

log = logging.getLogger(__name__)

_lock = threading.Lock()
_counts = {"programs": 0, "from_cache": 0}
_is_set_up = False


def set_up_jax(home: str) -> None:
    """Keeps compiled programs in `home`/jax-cache, or where JAX_COMPILATION_CACHE_DIR says; the first call decides.

    Whoever can write there can run code here, for a program is loaded as it lies there. So the folder is this user's
    alone (0700), on this machine: never a bucket, never shared between projects.
    """
    global _is_set_up
    with _lock:
        if _is_set_up:
            return
        _is_set_up = True
        folder = jax.config.values["jax_compilation_cache_dir"] or os.path.join(home, "jax-cache")
        try:
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o700)
        except OSError as error:
            log.warning("Failed to keep compiled programs in %s: %s; each start compiles again", folder, error)
            return
        jax.config.update("jax_compilation_cache_dir", folder)
        # Every program counts: a worker is started many times, and each waits for all of them.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def programs() -> int:
    """How many programs JAX has made ready in this process, whatever for, loaded from the cache or compiled."""
    return _counts["programs"]


def compiles() -> int:
    """How many of them it had to compile."""
    return _counts["programs"] - _counts["from_cache"]


def _count(key: str) -> None:
    with _lock:
        _counts[key] += 1


# What JAX itself reports, so that a program that slips in between is counted too.
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration_secs, **_: (
        _count("programs") if event == "/jax/core/compile/backend_compile_duration" else None
    )
)
jax.monitoring.register_event_listener(
    lambda event, **_: _count("from_cache") if event == "/jax/compilation_cache/cache_hits" else None
)
