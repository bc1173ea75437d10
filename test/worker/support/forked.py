"""Python processes without the time of imports: `forks` starts one after another.

An import of JAX takes a second of CPU time.
"""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from environment import HERE
from waiting import HANG_S


class Forked:
    """A process of forks.py. Has the methods of Popen that tests use."""

    stderr = None

    def __init__(self, parent, **order):
        parent.stdin.write(json.dumps(order).encode() + b"\n")
        self._parent, self._status = parent, None
        self.pid = int(parent.stdout.readline().split()[1])

    def wait(self, timeout=HANG_S):
        if self._status is None:
            ready, _, _ = select.select([self._parent.stdout], [], [], timeout)
            assert ready, f"the process runs for more than {timeout} s"
            self._status = int(self._parent.stdout.readline().split()[1])
        return self._status

    def send_signal(self, number):
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self):
        self.wait()
        if self.stderr:
            self.stderr.close()


class Forks:
    """Starts processes, each after the end of the one before; `last` is the process that was started last."""

    def __init__(self, parent, folder: Path):
        self._parent, self._folder, self.last = parent, folder, None

    def start(self, call, *arguments, environment=None, stdout=os.devnull, stderr=os.devnull):
        """Calls `module:function` with the arguments in a new process."""
        paths = {"stdout": str(stdout), "stderr": str(stderr)}
        variables = dict(os.environ if environment is None else environment)
        self.last = Forked(self._parent, call=call, arguments=arguments, environment=variables, **paths)
        return self.last

    def run(self, call, *arguments, **more):
        """The status and the output of a call in a process, as subprocess.run returns them."""
        stdout, stderr = self._folder / "stdout", self._folder / "stderr"
        status = self.start(call, *arguments, stdout=stdout, stderr=stderr, **more).wait()
        return SimpleNamespace(returncode=status, stdout=stdout.read_text(), stderr=stderr.read_text())

    def command(self, module, *arguments, **more):
        """The status and the output of `python -m module arguments`."""
        return self.run("forks:run_module", module, *arguments, **more)


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, f"{HERE}/forks.py"], stdin=pipe, stdout=pipe, bufsize=0) as parent:
        yield Forks(parent, tmp_path_factory.mktemp("forks"))
