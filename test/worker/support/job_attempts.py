"""Attempts of jobs with real processes, against a fake bucket."""

import os
import sys
import threading
import uuid
from pathlib import Path

import pytest

from build import BUCKET, bucket
from gleaner_worker.failures import LeaseLost
from gleaner_worker.jobs import output
from gleaner_worker.jobs.limits import Limits
from gleaner_worker.jobs.prepared_code import PreparedCode
from gleaner_worker.jobs.process import run_process
from gleaner_worker.jobs.runner import JobRunner
from gleaner_worker.jobs.user import FIRST_UID, find_job_user, make_folder
from waiting import HANG_S, until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a job user needs root")
FOLDER = "jobs/j1/epoch_2/"
# The cache of uv that the commands keep. A VM has this cache from its start.
UV_CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gleaner", "uv")
RAN = dict.fromkeys(("bundle", "worker_bundle", "repo", "commit", "jax_version", "environment")) | {"jax_version": "1"}
NEW_CHECKPOINT = {
    **{"bucket": BUCKET, "folder": "checkpoints/j1/", "versions": []},
    **{"max_gb": 100, "max_files": 10_000, "every_s": 60},
}
ONE_SLICE = {"host": 0, "hosts": 1, "addresses": [""], "port": 8482, "slice": 0, "slices": 1}


def an_order(**changes):
    return {
        "id": "j1",
        "code": None,
        "args": None,
        "command": None,
        "challenge_number": None,
        "timeout_s": HANG_S,
        "source": None,
        "environment": None,
        "source_version": None,
        "limits": None,
        "bucket": BUCKET,
        "checkpoint": NEW_CHECKPOINT,
        "fence_s": HANG_S,
        "folder": FOLDER,
        "slice": ONE_SLICE,
    } | changes


def a_host(home: Path) -> dict[str, str]:
    """Makes the home of a host with its secret. Returns the variables of its agent."""
    home.mkdir()
    (home / "host-secret").write_text("5e" * 32)
    (home / "host-secret").chmod(0o600)
    return {"GCE_METADATA_HOST": "127.0.0.1:1", "GLEANER_HOME": str(home)}


class Jobs:
    """Runs jobs on one host; `output` is the text of the last job.

    Jobs import a stand-in for JAX, which takes no time. `prepare=with_jax` gives a job the real JAX.
    """

    def __init__(self, storage, home: Path):
        self.storage, self.home, self.env = storage, home, a_host(home)
        self.stand_in = home.parent / "stand-in"
        (self.stand_in / "jax").mkdir(parents=True)
        self.write_jax("")
        (self.stand_in / "jax" / "distributed.py").write_text("def initialize(): pass\n")
        (self.stand_in / "jax" / "numpy.py").touch()

    def write_jax(self, start):
        """Writes the code that runs when a job imports the stand-in."""
        (self.stand_in / "jax" / "__init__.py").write_text(f"from . import distributed\n{start}")

    def user(self):
        return find_job_user(self.env)

    def prepare(self, order=None):
        folder = str(self.stand_in)
        return PreparedCode(sys.executable, None, RAN, {"PYTHONPATH": folder}, (folder,))

    def runner(self, prepare=None, user=None, more=None, **order):
        """The runner of a job. `more`: further arguments of the runner."""
        self.storage.clear("jobs/")
        order, prepare, user = an_order(**order), prepare or self.prepare, user or self.user
        return JobRunner(order, 2, str(self.home), bucket(), prepare, user, **more or {})

    def run(self, **order):
        return self.runner(**order).run()

    @property
    def output(self):
        names = self.storage.names(BUCKET, f"{FOLDER}output/")
        return b"".join(self.storage.data(BUCKET, name) for name in names).decode()

    def process(
        self, *argv, stop=None, write=lambda data: None, environment=None, ramfs=None, has_network=True, **limits
    ):
        """Runs one process of a new user in a folder of its own."""
        user, folder = find_job_user(self.env, has_network=has_network), str(self.home / "jobs" / uuid.uuid4().hex)
        make_folder(folder, user)
        tmp = make_folder(f"{folder}/tmp", user)
        wanted = {"wall_s": HANG_S, "memory_bytes": 1 << 30, "processes": 500, "open_files": 256, "file_bytes": 1 << 24}
        return run_process(
            argv,
            user=user,
            folder=folder,
            environment={"PATH": "/usr/bin:/bin"} | (environment or {}),
            limits=Limits(**(wanted | limits)),
            write=write,
            stop=stop or threading.Event(),
            tmp=tmp,
            ramfs=ramfs,
        )


def start(runner, is_begun=lambda: True):
    """Starts the runner on a thread. wait() -> its ending or its error, when the runner has ended."""
    result = {}

    def run():
        try:
            result["ending"] = runner.run()
        except LeaseLost as error:
            result["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: is_begun() or not thread.is_alive())
    assert is_begun(), result

    def wait():
        thread.join(HANG_S)
        assert not thread.is_alive()
        return result

    return wait


def with_jax(order):
    return PreparedCode(sys.executable, None, RAN)


def commands_of(home: Path) -> list[str]:
    """The programs and arguments of the processes of jobs on the host with this home."""
    found = []
    for pid in processes_of(home):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def processes_of(home: Path) -> list[int]:
    """Processes of users of jobs that work in a folder of this home. A zombie has no folder."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if os.stat(f"/proc/{pid}").st_uid >= FIRST_UID and os.readlink(f"/proc/{pid}/cwd").startswith(f"{home}/"):
                found.append(pid)
        except OSError:  # it has ended, or the path of its folder is too long to read
            pass
    return found


@pytest.fixture
def jobs(storage, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "EVERY_S", 0.1)
    host = Jobs(storage, tmp_path / "agent")
    yield host
    assert processes_of(host.home) == []
