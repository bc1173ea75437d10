"""startup.sh in tests: sourced for one function, or run as a whole with a stand-in for uv or for the environment."""

import hashlib
import io
import os
import random
import shlex
import subprocess
import sys
import tarfile
import threading

import pytest

from build import BUCKET
from environment import WORKER
from waiting import HANG_S, until

SCRIPT = os.path.join(WORKER, "startup.sh")
SOURCE = f"source {shlex.quote(SCRIPT)}"
ENVIRONMENT = "e" * 16
# A Python that waits for the file AGENT_WAITS_FOR before it imports the agent.
PYTHON = f"""#!/bin/bash
if [[ $1 == -c && -n ${{AGENT_WAITS_FOR:-}} ]]; then
  touch "$AGENT_WAITS_FOR.begun"
  for _ in {{1..{50 * HANG_S}}}; do [[ ! -e $AGENT_WAITS_FOR ]] || break; sleep 0.02; done
fi
exec {shlex.quote(sys.executable)} "$@"
"""


@pytest.fixture
def home(tmp_path):
    """A home with the environment of a local cloud, and a stand-in for uv, which makes the folder of an environment.

    UV_WAITS_FOR: the file that ends an installation.
    """
    write_python(tmp_path / "home" / f"env-{ENVIRONMENT}" / "bin" / "python3")
    lock = os.path.join(WORKER, "uv-requirements.lock")
    with open(lock, "rb") as file:
        key = hashlib.sha256(file.read()).hexdigest()[:16]
    folder = tmp_path / "home" / "uv-cache" / f"gleaner-uv-{key}" / "bin"
    folder.mkdir(parents=True)
    (folder / "uv").write_text(
        f"""#!/bin/bash
echo "$*" >> {tmp_path}/uv-calls
if [[ $1 == venv ]]; then
  for dir; do :; done
  mkdir -p "$dir/bin"; ln -s "{sys.executable}" "$dir/bin/python"
elif [[ -n $UV_WAITS_FOR ]]; then
  for _ in {{1..{50 * HANG_S}}}; do [[ ! -e $UV_WAITS_FOR ]] || break; sleep 0.02; done
fi
"""
    )
    (folder / "uv").chmod(0o755)
    return tmp_path / "home"


def write_python(path):
    path.parent.mkdir(parents=True)
    path.write_text(PYTHON)
    path.chmod(0o755)


def calls_of_uv(home):
    path = home.parent / "uv-calls"
    return path.read_text() if path.exists() else ""


def run(*command, umask=-1, **env):
    """Starts a command in a session of its own."""
    pipe, env = subprocess.PIPE, os.environ | env
    return subprocess.Popen(command, env=env, umask=umask, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def end(process):
    stdout, stderr = process.communicate(timeout=HANG_S)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def bash(command, *arguments, **env):
    return end(run("bash", "-c", command, "_", *arguments, **env))


def begin_make(home, lock, **env):
    command = f'{SOURCE}; make_environment "$@"'
    env |= {"GLEANER_HOME": str(home), "UV_CACHE_DIR": str(home / "uv-cache")}
    return run("bash", "-c", command, "_", str(home / "env"), str(lock), **env)


def make(home, lock):
    return end(begin_make(home, lock))


def a_lock(tmp_path, text="# nothing\n"):
    path = tmp_path / "requirements.lock"
    path.write_text(text)
    return path


def begin(cloud, storage, home, umask=-1, **env):
    variables = {
        "GCE_METADATA_HOST": cloud.host,
        "STORAGE_EMULATOR_HOST": storage.url,
        "GLEANER_HOME": str(home),
        "GLEANER_PLATFORM": "cpu",
        "UV_CACHE_DIR": str(home / "uv-cache"),
    }
    return run("bash", SCRIPT, umask=umask, **(variables | env))


def start(cloud, storage, home, **env):
    return end(begin(cloud, storage, home, **env))


def start_until_stopped(cloud, storage, home):
    """The step `agent` ends when the heartbeats of the setup have ended."""
    may_end = home.parent / "heartbeats-ended"
    process = begin(cloud, storage, home, AGENT_WAITS_FOR=str(may_end))
    console = threading.Thread(target=lambda: lines.extend(process.stderr))
    lines = []
    console.start()
    until(lambda: process.poll() is not None or any("Stopping: " in line for line in lines))
    may_end.touch()
    console.join()
    process.wait(HANG_S)
    return subprocess.CompletedProcess(process.args, process.returncode, process.stdout.read(), "".join(lines))


def a_bundle(storage, cloud, change=lambda tar: None, environment=f"{ENVIRONMENT} - 0\n"):
    """A bundle whose agent prints its environment. environment: the line that names the archive of its Python."""

    def fill(tar):
        says = "'agent', os.environ['JAX_PLATFORMS'], 'PYTHONDONTWRITEBYTECODE' in os.environ, sys.flags.safe_path"
        agent = f"import os, sys; print({says})".encode()
        for name, text in {
            "gleaner_worker/__init__.py": b"",
            "gleaner_worker/agent/__main__.py": agent,
            "gleaner_worker/agent/agent.py": b"",
        }.items():
            add(tar, name, text)
        change(tar)

    return store_bundle(storage, cloud, environment, fill)


def store_bundle(storage, cloud, environment, fill):
    """Stores a bundle with the members that `fill` adds, and returns its sha256."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        if environment is not None:
            add(tar, "environment", environment.encode())
        fill(tar)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    storage.put(BUCKET, f"bundles/{digest}.tar.gz", buffer.getvalue())
    cloud.attributes["gleaner-bundle"] = digest
    return digest


def add(tar, name, text, mode=0o644):
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(text), mode
    tar.addfile(member, io.BytesIO(text))


def an_environment(storage, change=lambda tar: None, size=None, padding=0):
    """Stores the archive of an environment, and returns the line that names it. padding: its random bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        add(tar, "bin/python3.12", PYTHON.encode(), 0o755)
        link = tarfile.TarInfo("bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, "python3.12"
        tar.addfile(link)
        add(tar, "lib/padding", random.Random(1).randbytes(padding))
        change(tar)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    storage.put(BUCKET, f"environments/{digest}.tar.gz", data)
    return f"{'a' * 16} {digest} {len(data) if size is None else size}\n"
