"""Control groups of attempts. The kernel's own need a machine whose root makes them; elsewhere the guard measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from environment import WORKER
from gleaner_worker.jobs import control_group
from job_attempts import a_host, needs_root

CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")
pytestmark = [needs_root, pytest.mark.slow]

# An agent in a group that systemd left to it. It runs each code within 200 MB and 50 processes.
AGENT = """
import contextlib, json, os, sys, threading
group = f'/sys/fs/cgroup/gleaner-test-{os.getpid()}.service'
os.mkdir(group)
with contextlib.suppress(OSError):
    open('/sys/fs/cgroup/cgroup.subtree_control', 'w').write('+cpu +memory +pids')
open(f'{group}/cgroup.procs', 'w').write('0')
from gleaner_worker.jobs.limits import Limits
from gleaner_worker.jobs.process import run_process
from gleaner_worker.jobs.user import find_job_user, make_folder
for number, code in enumerate(json.loads(sys.argv[2])):
    user = find_job_user()
    ended = run_process(
        [sys.executable, '-S', '-c', code], user=user, folder=make_folder(f'{sys.argv[1]}/jobs/{number}', user),
        environment={'PATH': '/usr/bin:/bin'}, limits=Limits(600, 200 << 20, 50, 256, 1 << 30), write=lambda data: None,
        stop=threading.Event())
    print(ended.exit_code, ended.cause, flush=True)
print([name for name in os.listdir(group) if name.startswith('job-')])
open('/sys/fs/cgroup/cgroup.procs', 'w').write('0')
os.rmdir(f'{group}/agent')
os.rmdir(group)
"""
HOGS = {
    "memory of a process": "x = bytearray(300 << 20)",
    "files of no folder": "import os\nfor _ in range(30): os.write(os.dup(os.memfd_create('')), bytes(9 << 20))",
    "files in memory": "open('/dev/shm/x', 'wb').write(bytes(150 << 20)); x = bytearray(100 << 20)",
    "System V memory": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
number = libc.shmget(1, ctypes.c_size_t(190 << 20), 0o1600)
ctypes.memset(libc.shmat(number, None, 0), 1, 190 << 20)
x = bytearray(50 << 20)
""",
}
FORKS = """
import os, time
try:
    while True:
        if os.fork() == 0: time.sleep(1000)
except BlockingIOError:
    raise SystemExit(7)
"""


def test_an_attempt_enters_a_control_group_that_has_each_of_its_limits(jobs, tmp_path, monkeypatch):
    groups = []

    class Group(control_group.ControlGroup):
        """A folder in the place of a group: the kernel makes `cgroup.procs`, and removes all files of a group."""

        def __init__(self, path):
            Path(path, "cgroup.procs").touch()
            super().__init__(path)

        def remove(self):
            os.close(self.entrance)
            groups.append({file.name: file.read_text() for file in Path(self._path).iterdir()})

    monkeypatch.setattr(control_group, "ControlGroup", Group)
    monkeypatch.setattr(control_group, "_parent", lambda: str(tmp_path))
    assert jobs.process("true", memory_bytes=200 << 20, processes=50).exit_code == 0
    limits = {"memory.max": str(200 << 20), "memory.oom.group": "1", "memory.swap.max": "0", "pids.max": "50"}
    assert groups == [limits | {"cpu.weight": "50", "cgroup.procs": "0"}]


@pytest.mark.skipif(
    not CONTROLLERS.exists() or "memory" not in CONTROLLERS.read_text().split(),
    reason="this machine has no control groups (v2) with memory",
)
def test_a_control_group_counts_each_kind_of_memory_and_the_processes_of_an_attempt(tmp_path):
    variables = a_host(tmp_path / "agent") | {"GLEANER_CGROUP_DELEGATED": "1", "PYTHONPATH": WORKER}
    argv = [sys.executable, "-c", AGENT, str(tmp_path / "agent"), json.dumps([*HOGS.values(), FORKS, "pass"])]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["None memory"] * len(HOGS) + ["7 None", "0 None", "[]"]
