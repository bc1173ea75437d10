"""An agent in a process of its own, against a fake worker-api, metadata server and bucket."""

import json
import os
import select
import signal
import subprocess
import sys

import pytest

from build import text_lines
from environment import HERE
from fake_cloud import boot
from waiting import HANG_S

LONG = text_lines(2500)


class ForkedAgent:
    """An agent that the process `agents` forks. Has the methods of Popen that tests use."""

    def __init__(self, agents, environment, hold_at, pipe):
        os.mkfifo(pipe)
        fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK, open waits for the agent
        os.set_blocking(fd, True)
        self.stderr = os.fdopen(fd)
        self._agents, self._status = agents, None
        order = {"environment": environment, "stderr": str(pipe), "hold_at": hold_at}
        agents.stdin.write(json.dumps(order).encode() + b"\n")
        self.pid = int(agents.stdout.readline().split()[1])

    def wait(self, timeout=None):
        if self._status is None:
            assert select.select([self._agents.stdout], [], [], timeout)[0], f"the agent runs for more than {timeout} s"
            self._status = int(self._agents.stdout.readline().split()[1])
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


@pytest.fixture(scope="session")
def agents():
    """A process that forks agents: an agent imports JAX, which takes two seconds."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, f"{HERE}/forked_agents.py"], stdin=pipe, stdout=pipe, bufsize=0) as process:
        yield process


@pytest.fixture
def agent(cloud, storage, tmp_path, agents):
    """agent() starts an agent, killed at the end of the test. The agents of a test run one after the other.

    hold_at=N: the agent waits after N samples until its extraction must end. is_forked=False: the agent reads the
    variables of JAX, which a forked agent has from its parent.
    """
    started = []
    boot(tmp_path / "home")

    def start(hold_at=None, is_forked=True, **more):
        variables = os.environ | {"GCE_METADATA_HOST": cloud.host, "GLEANER_HOME": str(tmp_path / "home")} | more
        if is_forked:
            started.append(ForkedAgent(agents, variables, hold_at, tmp_path / f"stderr-{len(started)}"))
        else:
            command = [sys.executable, "-m", "gleaner_worker.agent"]
            started.append(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """Waits until the agent exits with status 0."""
    assert process.wait(HANG_S) == 0, process.stderr and process.stderr.read()


def preempt(cloud, process, notice):
    """Preempts the VM of the agent with a notice by SIGTERM, or by the metadata server."""
    if notice == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        cloud.preempted = True


def shards_done(body):
    return (body["progress"] or {}).get("shards_done", 0)


def running(asked, samples=1):
    return any(a["action"] == "heartbeat" and a["progress"] and a["progress"]["samples_done"] >= samples for a in asked)


def release_of(cloud, number=0):
    release = cloud.releases()[number]
    return release["outcome"], release["failure"] and release["failure"]["kind"]
