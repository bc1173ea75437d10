"""Paths and environment variables of the tests and their subprocesses. Imported before any other module."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.abspath(os.path.join(HERE, "..", "..", "..", "worker-startup"))
# The folder of compiled programs and bytecode, shared with subprocesses: temporary, or the folder that test/run.ts
# keeps. Bytecode stays out of the sources, because the bundle is made from these.
CACHE = os.environ.setdefault("GLEANER_TEST_CACHE", os.path.join(tempfile.gettempdir(), f"gleaner-test-{os.getpid()}"))

sys.path[:0] = [WORKER, HERE]
sys.pycache_prefix = os.path.join(CACHE, "bytecode")
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ |= {
    # `python3` is this Python at once, and not a script of pyenv that looks for it.
    "PATH": os.path.dirname(os.path.realpath(sys.executable)) + os.pathsep + os.environ["PATH"],
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": os.path.join(CACHE, "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONPATH": WORKER,
    "PYTHONPYCACHEPREFIX": sys.pycache_prefix,
}


def with_devices(count):
    """The variables of a process that has so many devices of the CPU."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return os.environ | {"XLA_FLAGS": flags.strip()}
