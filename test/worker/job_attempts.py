"""Attempts of jobs with real processes, against a fake bucket."""

import os
import sys
import threading
import uuid
from pathlib import Path

import pytest

from build import BUCKET
from gleaner_worker import objects
from gleaner_worker.jobs.prepared import Prepared, SourceFailed
from gleaner_worker.jobs.process import Limits, run_process
from gleaner_worker.jobs.runner import JobRunner
from gleaner_worker.jobs.user import find_job_user, make_folder
from gleaner_worker.objects import Bucket

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a user of its own needs root")
FOLDER = "jobs/j1/epoch_2/"
# A VM has the cache of uv from its start; the commands keep theirs here.
UV_CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gleaner", "uv")
UID = 100_000 + 16 * os.getpid()  # tests run at the same time
RAN = dict.fromkeys(("bundle", "worker_bundle", "repo", "commit", "jax_version", "environment")) | {"jax_version": "1"}


def an_order(**changes):
    return {
        "id": "j1",
        "code": None,
        "command": None,
        "challenge_number": None,
        "timeout_s": 60,
        "source": None,
        "environment": None,
        "source_version": None,
        "limits": None,
        "bucket": BUCKET,
        "folder": FOLDER,
    } | changes


def prepare(order):
    if order["source"]:
        raise SourceFailed("source", "Failed to fetch: no such branch")
    return Prepared(sys.executable, None, RAN, {})


class Jobs:
    """Runs jobs on one host; `output` is the text of the last job."""

    def __init__(self, storage, home: Path):
        self.storage, self.home = storage, home
        self.env = {"GCE_METADATA_HOST": "127.0.0.1:1", "GLEANER_HOME": str(home), "GLEANER_JOB_UID": str(UID)}
        home.mkdir()
        (home / "host-secret").write_text("5e" * 32)
        (home / "host-secret").chmod(0o600)

    def user(self):
        return find_job_user(self.env)

    def runner(self, prepare=prepare, **order):
        self.storage.clear("jobs/")
        bucket = Bucket(objects.make_client("local"), BUCKET)
        return JobRunner(an_order(**order), 2, str(self.home), bucket, prepare, self.user)

    def run(self, **order):
        return self.runner(**order).run()

    @property
    def output(self):
        names = self.storage.names(BUCKET, f"{FOLDER}output/")
        return b"".join(self.storage.data(BUCKET, name) for name in names).decode()

    def process(self, *argv, stop=None, write=lambda data: None, environment=None, **limits):
        """Runs one process of the job user in a folder of its own."""
        user, folder = self.user(), str(self.home / "jobs" / uuid.uuid4().hex)
        make_folder(folder, user)
        tmp = make_folder(f"{folder}/tmp", user)
        wanted = {"wall_s": 30, "memory_bytes": 1 << 30, "processes": 500, "open_files": 256, "file_bytes": 1 << 24}
        return run_process(
            argv,
            user=user,
            folder=folder,
            environment={"PATH": "/usr/bin:/bin"} | (environment or {}),
            limits=Limits(**(wanted | limits)),
            write=write,
            stop=stop or threading.Event(),
            tmp=tmp,
        )


def processes_of(uid):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                found.append(int(pid))
        except FileNotFoundError:
            pass
    return found


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """What jobs compile, shared by all tests."""
    folder = tmp_path_factory.mktemp("compiled")
    os.chown(folder, UID, UID)
    return folder


@pytest.fixture
def jobs(storage, tmp_path, compiled):
    host = Jobs(storage, tmp_path / "agent")
    (host.home / "jobs").mkdir()
    (host.home / "jobs" / f"cache-{UID}").symlink_to(compiled)
    yield host
    assert processes_of(UID) == []
