"""The reader as a package of its own: installed from its folder, with numpy and nothing else."""

import os
import subprocess
import sys

import pytest

from environment import WORKER
from stored_run import store_run

pytestmark = pytest.mark.slow

NO_NETWORK = ("error sending request", "Failed to fetch", "Failed to download", "operation timed out")
PACKAGE = os.path.join(WORKER, "gleaner_reader")
USE = """
import sys, gleaner_reader
assert "site-packages" in gleaner_reader.__file__, gleaner_reader.__file__
run = gleaner_reader.open(sys.argv[1])
print(gleaner_reader.__version__, run.num_rows, next(iter(run.layer(0))).dtype, len(next(run.batches(0, batch_rows=8))))
known = {"numpy", "ml_dtypes", "jax", "torch", "google", "zstandard", "safetensors"}
print(*sorted(known & set(sys.modules)))
"""


def uv(*arguments):
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gleaner", "uv")
    script = 'source "$1/startup.sh"; exec "$(ensure_uv "$2" "$1/uv-requirements.lock")" "${@:3}"'
    return subprocess.run(
        ["bash", "-c", script, "bash", WORKER, sys.executable, *arguments],
        env=environment | {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", cache)},
        capture_output=True,
        text=True,
    )


def test_the_package_installs_into_an_environment_of_its_own(tmp_path):
    stored = store_run(tmp_path / "run")
    before = sorted(os.listdir(PACKAGE))
    made = uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "env"))
    assert made.returncode == 0, made.stderr
    python = str(tmp_path / "env/bin/python")
    done = uv("pip", "install", "--python", python, PACKAGE)
    if done.returncode and any(sign in done.stderr for sign in NO_NETWORK):
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr
    listed = uv("pip", "list", "--python", python, "--format", "freeze").stdout.split()
    assert [name.partition("==")[0] for name in listed] == ["gleaner-reader", "numpy"]
    assert sorted(os.listdir(PACKAGE)) == before
    used = subprocess.run([python, "-I", "-c", USE, stored.folder], capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    assert used.stdout.splitlines() == [f"0.1.0 {len(stored.rows('resid_post.0'))} float32 8", "numpy"]
