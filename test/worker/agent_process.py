"""An agent in a process of its own, against a fake worker-api, metadata server and bucket."""

import os
import subprocess
import sys

import pytest

from build import text_lines
from environment import HERE
from fake_cloud import boot

LONG = text_lines(2500)


@pytest.fixture
def agent(cloud, storage, tmp_path):
    """agent() starts an agent, killed at the end of the test. hold_at=N: it waits after N samples until it must end."""
    started = []
    boot(tmp_path / "home")

    def start(hold_at=None, **more):
        env = os.environ | {"GCE_METADATA_HOST": cloud.host, "GLEANER_HOME": str(tmp_path / "home")} | more
        command = ["-m", "gleaner_worker.agent"] if hold_at is None else [f"{HERE}/held_agent.py", str(hold_at)]
        process = subprocess.Popen([sys.executable, *command], env=env, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def running(asked, samples=1):
    return any(a["action"] == "heartbeat" and a["progress"] and a["progress"]["samples_done"] >= samples for a in asked)


def release_of(cloud, number=0):
    release = cloud.releases()[number]
    return release["outcome"], release["failure"] and release["failure"]["kind"]
