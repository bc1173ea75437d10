"""startup.sh in tests: sourced for one function, or run as a whole with a stand-in for uv."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile

import pytest

from build import BUCKET
from environment import WORKER

SCRIPT = os.path.join(WORKER, "startup.sh")


@pytest.fixture
def home(tmp_path):
    """A home with a stand-in for uv, which makes the folder of an environment.

    UV_SLOW: seconds of an installation. UV_WAITS_FOR: the file that ends an installation, after at most 60 s.
    """
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
  mkdir -p "$dir/bin"; ln -s {sys.executable} "$dir/bin/python"
elif [[ -n $UV_SLOW ]]; then sleep "$UV_SLOW"
elif [[ -n $UV_WAITS_FOR ]]; then
  for _ in {{1..3000}}; do [[ ! -e $UV_WAITS_FOR ]] || break; sleep 0.02; done
fi
""",
    )
    (folder / "uv").chmod(0o755)
    return tmp_path / "home"


def bash(command, *arguments, **env):
    return subprocess.run(
        ["bash", "-c", command, "_", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=120,
    )


def make(home, lock, **env):
    return bash(
        f'source {SCRIPT}; make_environment "$@"',
        str(home / "env"),
        str(lock),
        GLEANER_HOME=str(home),
        UV_CACHE_DIR=str(home / "uv-cache"),
        **env,
    )


def a_lock(tmp_path, text="# nothing\n"):
    path = tmp_path / "requirements.lock"
    path.write_text(text)
    return path


def start(cloud, storage, home, umask=-1, **env):
    return subprocess.run(
        ["bash", SCRIPT],
        env=os.environ
        | {
            "GCE_METADATA_HOST": cloud.host,
            "STORAGE_EMULATOR_HOST": storage.url,
            "GLEANER_HOME": str(home),
            "GLEANER_PLATFORM": "cpu",
        }
        | {"UV_CACHE_DIR": str(home / "uv-cache")}
        | env,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=120,
    )


def a_bundle(storage, cloud, change=lambda tar: None, leave_out=None):
    """A bundle whose agent prints its environment."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        says = "'agent', os.environ['JAX_PLATFORMS'], 'PYTHONDONTWRITEBYTECODE' in os.environ, sys.flags.safe_path"
        agent = f"import os, sys; print({says})".encode()
        for name, text in {
            "gleaner_worker/__init__.py": b"",
            "gleaner_worker/agent/__main__.py": agent,
            "requirements.lock": b"# cpu\n",
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        for name in ("uv-requirements.lock", "python-environment.sh"):
            if name != leave_out:
                tar.add(os.path.join(WORKER, name), name)
        change(tar)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    storage.put(BUCKET, f"bundles/{digest}.tar.gz", buffer.getvalue())
    cloud.attributes["gleaner-bundle"] = digest
    return digest
