"""The world of an attempt: nothing that it leaves reaches another attempt or the agent, and it reaches no other one."""

import ctypes
import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from gleaner_worker.jobs.prepared_code import PreparedCode
from gleaner_worker.jobs.programs import Programs
from job_attempts import RAN, an_order, needs_root

pytestmark = [needs_root, pytest.mark.slow]

PYTHON = (sys.executable, "-c")
# Names of this process: another run of these tests, which may leave them on the host, has others.
LEFT, RAMFS = f"left-{os.getpid()}", f"/mnt/gleaner/a-world-{os.getpid()}"
KEYCTL, ADD_KEY = (219, 217) if os.uname().machine == "aarch64" else (250, 248)
JOIN, SEARCH, SESSION = 1, 10, -3

# Leaves what a process of the machine can leave: files in every folder that it may change, memory of System V, a key.
LEAVE = f"""
import ctypes, os
left = [os.getcwd(), {RAMFS!r}]
for top in ('/tmp', '/var', '/run', '/dev', '/opt', '/srv', '/mnt'):
    for folder, folders, _ in os.walk(top):
        if os.access(folder, os.W_OK):
            left.append(folder)
for folder in set(left):
    open(folder + '/{LEFT}', 'w').close()
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x61, ctypes.c_size_t(1 << 20), 0o1666) >= 0, libc.shmget(0x62, ctypes.c_size_t(2 << 30), 0o1666))
libc.syscall({ADD_KEY}, b'user', b'left', b'x', ctypes.c_size_t(1), {SESSION})
if os.fork() == 0:
    os.setsid()
    os.execlp('sleep', 'sleep', '1000')
print(os.getuid())
"""
FIND = f"""
import ctypes, os
print([folder for folder in ('/tmp', '/var/tmp', '/dev/shm', '/run/lock', '/dev/mqueue', {RAMFS!r})
    if os.path.exists(folder + '/{LEFT}')])
libc = ctypes.CDLL(None)
print(libc.shmget(0x61, ctypes.c_size_t(1), 0), libc.syscall({KEYCTL}, {SEARCH}, {SESSION}, b'user', b'left', 0))
print(sorted(open(f'/proc/{{pid}}/comm').read().strip() for pid in os.listdir('/proc') if pid.isdigit()))
print(os.getuid())
"""


def test_an_attempt_finds_nothing_of_an_earlier_one_and_leaves_nothing_on_the_host(jobs):
    ctypes.CDLL(None).syscall(KEYCTL, JOIN, None)  # as the agent, which systemd gives a keyring
    pieces = []
    for code in (LEAVE, FIND):
        ended = jobs.process(*PYTHON, code, write=pieces.append, ramfs=RAMFS)
        assert ended.exit_code == 0, (ended, pieces)
    made, first_uid, *found, second_uid = b"".join(pieces).decode().splitlines()
    assert made == "True -1"  # more System V memory than the limit of the attempt is refused
    assert found == ["[]", "-1 -1", "['python', 'python']"]
    assert first_uid != second_uid
    folders = ["/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/dev/mqueue", RAMFS, *sys.path]
    assert [folder for folder in folders if os.path.exists(f"{folder}/{LEFT}")] == []
    assert not os.path.exists(RAMFS)


def test_an_attempt_without_a_network_reaches_itself_alone(jobs):
    code = """
import socket, sys
own = socket.create_server(('127.0.0.1', 0))
for port in (own.getsockname()[1], int(sys.argv[1])):
    try:
        socket.create_connection(('127.0.0.1', port), timeout=60).close()
        print('reached', flush=True)
    except ConnectionRefusedError:
        print('refused', flush=True)
try:
    socket.socket(socket.AF_UNIX).connect('\\0gleaner-' + sys.argv[1])
except ConnectionRefusedError:
    print('refused', flush=True)
"""
    pieces = []
    with socket.create_server(("127.0.0.1", 0)) as host, socket.socket(socket.AF_UNIX) as abstract:
        port = host.getsockname()[1]
        abstract.bind(f"\0gleaner-{port}")
        abstract.listen()
        ended = jobs.process(*PYTHON, code, str(port), write=pieces.append, has_network=False)
    assert (ended.exit_code, b"".join(pieces)) == (0, b"reached\nrefused\nrefused\n")


# Writes bytecode for another module, with the time and the size of its source, and a compiled program.
POISON = """
import importlib.util, marshal, os, struct
source = importlib.util.find_spec('victim').origin
found = os.stat(source)
code = marshal.dumps(compile("NAME = 'poison'", source, 'exec'))
header = importlib.util.MAGIC_NUMBER + struct.pack('<LLL', 0, int(found.st_mtime), found.st_size)
path = importlib.util.cache_from_source(source)
try:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'wb').write(header + code)
except OSError:
    pass
cache = os.environ['JAX_COMPILATION_CACHE_DIR']
print(sorted(os.listdir(cache)), [os.access(f'{cache}/{name}', os.W_OK) for name in os.listdir(cache)])
for name in ('jit_f-1-cache', 'not a program', 'link-cache'):
    if name == 'link-cache' and not os.path.lexists(f'{cache}/{name}'):
        os.symlink('/etc/passwd', f'{cache}/{name}')
    elif not os.path.lexists(f'{cache}/{name}'):
        open(f'{cache}/{name}', 'w').close() if name == 'not a program' else open(f'{cache}/{name}', 'w').write('x')
"""
USE = "import os, victim; print(victim.NAME, os.listdir(os.environ['JAX_COMPILATION_CACHE_DIR']))"


def test_bytecode_and_programs_of_an_attempt_reach_the_same_code_alone(jobs, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "victim.py").write_text("NAME = 'intact'\n")
    prepared = PreparedCode(sys.executable, str(source), RAN)
    outputs = []
    for code in (POISON, USE, POISON):
        ending = jobs.runner(prepare=lambda order: prepared, command=[*PYTHON, code]).run()
        assert ending["outcome"] == "completed", jobs.output
        outputs.append(jobs.output)
    assert outputs == ["[] []\n", "intact []\n", "['jit_f-1-cache'] [False]\n"]
    (kept,) = (jobs.home / "jobs" / "programs").glob("*/*")
    assert kept.read_text() == "x" and (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (0, 0o644)
    assert not list(Path(source).glob("__pycache__"))


def test_programs_are_those_of_the_same_code_inputs_environment_and_commit(tmp_path):
    def programs_of(ran=RAN, **changes):
        return Programs(str(tmp_path / "programs"), an_order(**changes), PreparedCode(sys.executable, None, ran))

    def lent(ran=RAN, **changes):
        folder = tempfile.mkdtemp(dir=tmp_path)
        programs_of(ran, **changes).lend(folder)
        return os.listdir(folder)

    left = tmp_path / "left"
    left.mkdir()
    (left / "jit_f-1-cache").write_text("x")
    programs_of().keep(str(left), os.geteuid())
    assert lent(id="j2", timeout_s=1) == ["jit_f-1-cache"]
    inputs = (
        {"code": "1"},
        {"args": ["1"]},
        {"command": "true"},
        {"challenge_number": 1},
        {"environment": {"setup_script": "true"}},
    )
    assert [lent(**changes) for changes in (*inputs, *({"ran": RAN | {name: "x"}} for name in RAN))] == [[]] * 11
