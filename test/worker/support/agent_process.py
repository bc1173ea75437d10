"""An agent in a process of its own, against a fake worker-api, metadata server and bucket."""

import os
import signal

import pytest

from build import text_lines
from fake_cloud import boot
from waiting import HANG_S

LONG = text_lines(2500)


@pytest.fixture
def agent(cloud, storage, tmp_path, forks):
    """agent() starts an agent, killed at the end of the test. The agents of a test run one after the other.

    hold_at=N: the agent waits after N samples until its extraction must end.
    """
    started = []
    boot(tmp_path / "home")

    def start(hold_at=None, **more):
        variables = os.environ | {"GCE_METADATA_HOST": cloud.host, "GLEANER_HOME": str(tmp_path / "home")} | more
        pipe = tmp_path / f"stderr-{len(started)}"
        os.mkfifo(pipe)
        read_end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK, open waits for the agent
        os.set_blocking(read_end, True)
        where = {"environment": variables, "stdout": pipe, "stderr": pipe}
        started.append(forks.start("forked_agent:run", hold_at, **where))
        started[-1].stderr = os.fdopen(read_end)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """Waits until the agent exits with status 0."""
    assert process.wait(HANG_S) == 0, process.stderr and process.stderr.read()


def preempt(cloud, process, notice):
    """Preempts the VM of the agent with a notice by SIGTERM, or by a key of the metadata server."""
    if notice == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    elif notice == "maintenance":
        cloud.maintenance_event = "TERMINATE_ON_HOST_MAINTENANCE"
    else:
        cloud.preempted = True


def shards_done(body):
    return (body["progress"] or {}).get("shards_done", 0)


def running(asked, samples=1):
    return any(a["action"] == "heartbeat" and a["progress"] and a["progress"]["samples_done"] >= samples for a in asked)


def release_of(cloud, number=0):
    release = cloud.releases()[number]
    return release["outcome"], release["failure"] and release["failure"]["kind"]
