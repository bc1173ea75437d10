"""The reader as a package of its own: from its folder, from git and as a wheel, with numpy and google-crc32c."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from environment import WORKER
from stored_run import store_run

pytestmark = pytest.mark.slow

NO_NETWORK = ("error sending request", "Failed to fetch", "Failed to download", "operation timed out")
SUBDIRECTORY = "worker-startup/gleaner_reader"
PACKAGE = os.path.join(WORKER, "gleaner_reader")
USE = """
import sys, gleaner_reader
assert "site-packages" in gleaner_reader.__file__, gleaner_reader.__file__
run = gleaner_reader.open(sys.argv[1])
print(gleaner_reader.__version__, run.num_rows, next(iter(run.layer(0))).dtype, len(next(run.batches(0, batch_rows=8))))
known = {"numpy", "ml_dtypes", "jax", "torch", "google", "google_crc32c", "zstandard", "safetensors"}
print(*sorted(known & set(sys.modules)))
"""


def uv(*arguments):
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gleaner", "uv")
    script = 'source "$1/startup.sh"; exec "$(ensure_uv "$1/uv-requirements.lock")" "${@:2}"'
    return subprocess.run(
        ["bash", "-c", script, "bash", WORKER, *arguments],
        env=environment | {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", cache)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python environment into which each test installs the package."""
    folder = tmp_path_factory.mktemp("env") / "env"
    made = uv("venv", "--quiet", "--python", sys.executable, str(folder))
    assert made.returncode == 0, made.stderr
    return str(folder / "bin/python")


def install(python, *packages):
    done = uv("pip", "install", "--python", python, "--reinstall-package", "gleaner-reader", *packages)
    if done.returncode and any(sign in done.stderr for sign in NO_NETWORK):
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr


def repository_with_the_reader(folder):
    """A git repository with the reader where this one has it."""
    shutil.copytree(PACKAGE, folder / SUBDIRECTORY, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "reader"]):
        subprocess.run([*git, *command], check=True)
    return f"gleaner-reader @ git+file://{folder}#subdirectory={SUBDIRECTORY}"


@pytest.mark.sample(1)  # both forms build the same wheel
@pytest.mark.parametrize("form", ["a git address", "a folder"])
def test_the_package_installs_into_an_environment_of_its_own(tmp_path, python, form):
    stored = store_run(tmp_path / "run")
    before = sorted(os.listdir(PACKAGE))
    install(python, PACKAGE if form == "a folder" else repository_with_the_reader(tmp_path / "repository"))
    (installed,) = Path(python).parents[1].glob("lib/python3*/site-packages/gleaner_reader")
    assert [name for name in ("__init__.py", "export/npy.py", "py.typed") if not (installed / name).exists()] == []
    listed = uv("pip", "list", "--python", python, "--format", "freeze").stdout.split()
    assert [name.partition("==")[0] for name in listed] == ["gleaner-reader", "google-crc32c", "numpy"]
    assert sorted(os.listdir(PACKAGE)) == before
    used = subprocess.run([python, "-I", "-c", USE, stored.folder], capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    assert used.stdout.splitlines() == [f"0.1.0 {len(stored.rows('resid_post.0'))} float32 8", "google_crc32c numpy"]
