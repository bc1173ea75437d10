"""JAX in this process: its cache of compiled programs."""

import logging
import os
import threading

import jax

log = logging.getLogger(__name__)

_lock = threading.Lock()
_is_set_up = False


def set_up_jax(home: str) -> None:
    """Keeps compiled programs in `home`/jax-cache, or in JAX_COMPILATION_CACHE_DIR; only the first call has an effect.

    JAX runs the programs of the cache unchecked, so a writer of the cache can run code. The folder therefore belongs to
    this user alone (0700), on this machine; it is never a bucket and never shared between projects.
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
        # Caches every program: a worker starts many times, and each start waits for all programs.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
