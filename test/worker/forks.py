"""Forks a process for each line on stdin, one after another, from a process that has imported JAX."""

import json
import os
import sys


def fork_each_line(run):
    """run(order) -> exit status, or None for 0. Prints "pid N" and "ended STATUS" of each process."""
    for line in sys.stdin:
        pid = os.fork()  # this process has not started JAX, so a fork is safe
        if pid == 0:
            try:
                os._exit(run(json.loads(line)) or 0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        print(f"pid {pid}", flush=True)
        _, status = os.waitpid(pid, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)
