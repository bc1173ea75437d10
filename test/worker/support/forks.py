"""Runs functions in processes that are forked, one after another, from a process that has imported JAX and the worker.

Each line on stdin starts a process:
{"call": "module:function", "arguments", "environment": all variables, "stdout": path, "stderr": path}
Its answers on stdout are "pid N" and "ended STATUS".
"""

import gc
import importlib
import json
import os
import runpy
import sys

import environment  # noqa: F401  (before the rest)
import extract_process  # noqa: F401  (these imports belong to the forked processes)
import gleaner_worker.agent.stream_work
import gleaner_worker.estimate.count
import gleaner_worker.verify.verify_run  # noqa: F401
from gleaner_worker.limited import process


def run_module(name, *arguments):
    """Runs `python -m name arguments`."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run(order):
    os.environ.clear()
    os.environ.update(order["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    files = [os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("stdout", "stderr")]
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    module, _, name = order["call"].partition(":")
    return getattr(importlib.import_module(module), name)(*order["arguments"])


def _serve():
    assert "jax" in sys.modules  # the modules above import JAX at once, and not with their first use
    process._starter = process._start_starter()  # all forked processes use it
    gc.freeze()  # a collection in a forked process skips the imported modules
    for line in sys.stdin:
        pid = os.fork()  # this process has not started JAX, so a fork is safe
        if pid == 0:
            try:
                os._exit(_run(json.loads(line)) or 0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        print(f"pid {pid}", flush=True)
        _, status = os.waitpid(pid, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    _serve()
