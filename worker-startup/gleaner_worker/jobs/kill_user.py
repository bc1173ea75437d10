"""Kills every process of a user, in a Python of its own after each process of a job. So the module imports little."""

import os
import signal
import sys
import time

from .descendants import has_processes

_UNUSED_UIDS = 3_000_000_000  # uids of guards start here, above every uid of jobs and people


def kill_user(uid: int) -> None:
    """Kills every process of the user with kill(-1), which no fork escapes. Needs root, and drops it for the calls."""
    # The real uid belongs to no other process, so neither the user nor another guard can signal this process. With the
    # effective uid of the user, kill(-1) reaches only processes of the user.
    os.setresuid(_UNUSED_UIDS + os.getpid(), uid, 0)
    try:
        for _ in range(100):
            # On Linux the call succeeds for as long as the machine has another process, of any user.
            os.kill(-1, signal.SIGKILL)
            if sys.platform == "linux" and not has_processes(uid):
                break
            time.sleep(0.005)
    except ProcessLookupError:
        pass
    finally:
        os.setresuid(0, 0, 0)
