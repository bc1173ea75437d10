"""Processes of the job user: their view of the machine, their limits, and their end."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gleaner_worker.failures import Failure
from gleaner_worker.jobs import process
from gleaner_worker.jobs.descendants import memory_bytes
from gleaner_worker.jobs.user import FIRST_UID
from job_attempts import needs_root, processes_of
from waiting import HANG_S, until

pytestmark = [needs_root, pytest.mark.slow]

PYTHON = (sys.executable, "-c")


def collected():
    pieces = []
    return pieces, pieces.append


def say(jobs, *argv, **more):
    pieces, write = collected()
    ended = jobs.process(*argv, write=write, **more)
    return ended, b"".join(pieces).decode()


def test_a_process_runs_as_the_job_user_without_files_and_variables_of_the_agent(jobs, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_AGENT", "x")
    code = """
import os, resource
print(os.getresuid(), os.getresgid(), os.getgroups(), os.umask(0o022), os.getsid(0) == os.getpid())
print(sorted(os.environ), os.read(0, 1), sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))
status = open('/proc/self/status').read()
print('NoNewPrivs:\\t1' in status, 'CapEff:\\t0000000000000000' in status)
print(open('/proc/self/oom_score_adj').read().strip())
print(resource.getrlimit(resource.RLIMIT_NPROC), resource.getrlimit(resource.RLIMIT_CORE))
"""
    with open(jobs.home / "host-secret", "rb") as left_open:
        os.set_inheritable(left_open.fileno(), True)
        ended, text = say(jobs, *PYTHON, code)
    assert (ended.exit_code, ended.cause) == (0, None), text
    uid = text.partition(",")[0].strip("(")
    assert int(uid) >= FIRST_UID
    assert text.splitlines() == [
        f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) [] 63 True",
        "['LC_CTYPE', 'PATH'] b'' ['0', '1', '2'] 4",
        "True True",
        "1000",
        "(500, 500) (0, 0)",
    ]


def test_the_folder_of_the_agent_and_the_home_of_root_are_hidden(jobs):
    (jobs.home / "work").mkdir()
    (jobs.home / "work" / "stream").write_text("x")
    script = f"cat {jobs.home}/host-secret; ls {jobs.home} {jobs.home}/jobs /root/.ssh; echo x > {jobs.home}/new"
    ended, text = say(jobs, "bash", "-c", script)
    assert ended.exit_code == 1
    assert "host-secret: No such file" in text and "/root/.ssh" in text and "new: " in text
    assert "work" not in text and os.listdir(jobs.home / "work") == ["stream"]


def test_a_program_that_cannot_start_ends_with_the_exit_code_of_a_shell(jobs):
    ended, text = say(jobs, "no-such-program")
    assert (ended.exit_code, text) == (127, "Failed to run no-such-program: No such file or directory\n")
    assert say(jobs, "/etc/passwd")[0].exit_code == 126


def test_an_endless_process_ends_with_term_at_its_timeout(jobs):
    ended = jobs.process("sleep", "1000", wall_s=0.1)
    assert (ended.exit_code, ended.signal, ended.cause) == (None, signal.SIGTERM, "timeout")


def test_a_process_that_ignores_term_is_killed_after_a_pause(jobs, monkeypatch):
    monkeypatch.setattr(process, "_TERM_S", 0.3)
    termed_at, killed_at, end, send = [], [], process._Guarded._end, process._Guarded._send

    def note_term(guarded, cause, now):
        termed_at.append(now)
        end(guarded, cause, now)

    def note_kill(guarded, data):
        if data == b"K":
            killed_at.append(time.monotonic())
        send(guarded, data)

    monkeypatch.setattr(process._Guarded, "_end", note_term)
    monkeypatch.setattr(process._Guarded, "_send", note_kill)
    stop = threading.Event()
    command = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    ended = jobs.process("bash", "-c", command, stop=stop, write=lambda _: stop.set())
    assert (ended.signal, ended.cause) == (signal.SIGKILL, "stopped")
    assert killed_at[0] - termed_at[0] >= 0.3


def test_a_process_that_handles_term_ends_with_its_own_exit_code(jobs):
    stop = threading.Event()
    pieces = []

    def write(data):
        pieces.append(data)
        stop.set()

    code = """
import signal, time
def save(*_):
    print('saved', flush=True)
    raise SystemExit(5)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
time.sleep(1000)
"""
    ended = jobs.process(*PYTHON, code, stop=stop, write=write)
    assert (ended.exit_code, ended.cause, b"".join(pieces)) == (5, "stopped", b"ready\nsaved\n")


def test_a_stop_after_the_end_of_a_process_keeps_its_exit_code(jobs, monkeypatch):
    stop, send = threading.Event(), process._Guarded._send

    def send_late(guarded, data):
        if data == b"T":
            (folder,) = (jobs.home / "jobs").glob("*/tmp")
            (folder / "go").touch()
            guarded._guard.wait()
        send(guarded, data)

    monkeypatch.setattr(process._Guarded, "_send", send_late)
    stop.set()
    ended = jobs.process("bash", "-c", "until [[ -e /tmp/go ]]; do sleep 0.05; done; exit 3", stop=stop)
    assert (ended.exit_code, ended.cause) == (3, "stopped")


@pytest.mark.parametrize("is_bound", [True, False], ids=["bound to its parent", "not yet bound"])
def test_a_guard_that_is_killed_before_its_process_is_a_failure_of_the_machine(jobs, monkeypatch, is_bound):
    if not is_bound:  # `unshare` is killed before it has asked that its child ends with it
        monkeypatch.setattr(process, "NAMESPACES", ("sh", "-c", 'exec 3<&0; "$@" <&3 & kill -9 $$', "sh"))
    monkeypatch.setattr(process._Guarded, "_send", lambda guarded, data: is_bound and guarded._guard.kill())
    with pytest.raises(Failure, match="signal 9 ended the guard") as failed:
        jobs.process("true")
    assert failed.value.kind == "infrastructure"


def test_a_fork_bomb_stays_below_its_limit_and_ends_when_it_is_stopped(jobs):
    seen, stop = [], threading.Event()

    def watch():
        until(lambda: seen.append(len(processes_of(jobs.home))) or sum(count > 50 for count in seen) > 10)
        stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = "bomb() { bomb | bomb & }; bomb; sleep 1000"
    ended = jobs.process("bash", "-c", command, stop=stop, wall_s=HANG_S, processes=100)
    watcher.join()
    assert ended.cause == "stopped" and max(seen) <= 100
    assert processes_of(jobs.home) == []


def test_a_count_of_memory_stops_at_its_limits_and_begins_with_the_largest_process():
    code = """
import os, time
for mb in (1, 200, 1):
    if os.fork() == 0:
        x = bytearray(mb << 20)
        os.write(1, b'.')
        break
time.sleep(1000)
"""
    with subprocess.Popen([*PYTHON, code], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout.read(3) == b"..."
            everything = memory_bytes(parent.pid, 1)
            assert memory_bytes(parent.pid, 1, until=0) == 0
            assert 200 << 20 < everything < 230 << 20
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_process_that_kills_its_parent_and_everything_kills_itself_alone(jobs):
    code = """
import os, signal
for pid in (os.getppid(), -1):
    try:
        os.kill(pid, 9)
    except OSError as error:
        print(type(error).__name__, flush=True)
os.killpg(0, 9)
"""
    ended, text = say(jobs, *PYTHON, code)
    assert (ended.signal, ended.cause, text) == (signal.SIGKILL, None, "PermissionError\nProcessLookupError\n")


def test_a_daemon_that_left_its_session_ends_with_the_process(jobs):
    script = "mkfifo p; (setsid setsid bash -c 'echo left > p; sleep 1000' &); cat p"
    ended, text = say(jobs, "bash", "-c", script)
    assert (ended.exit_code, text) == (0, "left\n")
    assert processes_of(jobs.home) == []


HOGS = {
    "memory of its own": "x = bytearray(100 << 20)",
    "memory of its children": "for _ in range(4):\n    if os.fork() == 0: x = bytearray(20 << 20); time.sleep(1000)",
    "files in shared memory": "open('/dev/shm/x', 'wb').write(bytes(30 << 20)); x = bytearray(30 << 20)",
    "files of no folder": "x = [os.memfd_create('x') for _ in range(6)]; [os.write(y, bytes(9 << 20)) for y in x]",
}


@pytest.mark.parametrize("hog", HOGS.values(), ids=HOGS)
def test_a_process_over_its_memory_limit_ends(jobs, hog):
    code = f"import os, time\n{hog}\ntime.sleep(1000)"
    ended = jobs.process(*PYTHON, code, memory_bytes=50 << 20, file_bytes=1 << 30)
    assert ended.cause == "memory"


FILLS = {
    "large files": "for n in range(16): open(f'x{n}', 'wb').write(bytes(1 << 20))",
    "many small files": "for n in range(400): open(f'x{n}', 'w')",
    "many folders": "for n in range(400): os.mkdir(f'x{n}')",
    "files below other folders": "for f in ('/tmp', '.'): open(f'{f}/x', 'wb').write(bytes(6 << 20))",
    "a deleted file that is open": "x = open('x', 'wb'); os.unlink('x'); x.write(bytes(16 << 20)); x.flush()",
    "a deleted file that is mapped": "x = open('x', 'w+b'); x.write(bytes(16 << 20)); x.flush()\n"
    "m = mmap.mmap(x.fileno(), 0); x.close(); os.unlink('x')",
    "folders that nobody may read": "os.mkdir('y'); open('y/x', 'wb').write(bytes(16 << 20)); os.chmod('y', 0)",
    "folders deeper than a path": "for n in range(300):\n    os.mkdir('y' * 200); os.chdir('y' * 200)",
    "files of a process that ends at once": "open('x', 'wb').write(bytes(16 << 20)); os._exit(0)",
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_a_process_that_writes_more_than_its_quota_ends(jobs, fill):
    code = f"import mmap, os, time\n{fill}\ntime.sleep(1000)"
    ended = jobs.process(*PYTHON, code, disk_bytes=8 << 20, files=200)
    assert ended.cause == "disk"


def test_files_that_are_replaced_or_have_several_names_count_once(jobs):
    code = "import os, time\nfor n in range(20): open('x', 'wb').write(bytes(2 << 20)); os.link('x', f'y{n}')\n"
    ended = jobs.process(*PYTHON, code, disk_bytes=8 << 20, files=200)
    assert (ended.exit_code, ended.cause) == (0, None)


def test_pages_that_children_share_count_once():
    code = """
import os, time
if os.fork() > 0: time.sleep(1000)
x = bytes(range(256)) * (1 << 18)
for _ in range(6):
    if os.fork() == 0: break
os.write(1, b'.')
time.sleep(1000)
"""
    with subprocess.Popen([*PYTHON, code], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout.read(7) == b"." * 7
            assert memory_bytes(parent.pid, 200 << 20) < 200 << 20
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_file_over_its_limit_and_too_many_open_files_are_refused(jobs):
    ended, text = say(jobs, "bash", "-c", "head -c 100000000 /dev/zero > big; stat -c %s big", file_bytes=1 << 20)
    assert "File too large" in text and text.endswith("\n1048576\n")
    ended, text = say(jobs, *PYTHON, "files = [open('/dev/null') for _ in range(100)]", open_files=64)
    assert ended.exit_code == 1 and "Too many open files" in text


def test_a_large_output_is_read_in_large_pieces(jobs):
    sizes = []
    command = "dd if=/dev/zero bs=64K count=1000 status=none"
    assert jobs.process("bash", "-c", command, write=lambda data: sizes.append(len(data))).exit_code == 0
    assert sum(sizes) == 1000 << 16 and len(sizes) < 16 * 1000


def test_a_killed_agent_leaves_no_process(jobs, tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(f"""
import os, sys, threading
from gleaner_worker.jobs.limits import Limits
from gleaner_worker.jobs.process import run_process
from gleaner_worker.jobs.user import find_job_user, make_folder
user = find_job_user({jobs.env!r})
folder = make_folder({str(jobs.home / "jobs" / "killed")!r}, user)
run_process(['bash', '-c', 'echo started; setsid sleep 1000 & sleep 1000'], user=user, folder=folder,
    environment={{'PATH': '/usr/bin:/bin'}},
    limits=Limits(1000, 1 << 30, 100, 100, 1 << 20), stop=threading.Event(),
    write=lambda data: os.write(1, data))
""")
    agent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout.readline() == "started\n"
    until(lambda: len(processes_of(jobs.home)) == 3)
    agent.kill()
    agent.communicate()
    until(lambda: processes_of(jobs.home) == [])
