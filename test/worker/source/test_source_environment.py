"""Versions of JAX in environments of their own, from an index of this machine, and preparations at the same time."""

import logging
import os
import re
import subprocess
import threading

import pytest

from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.source import environment, sealed
from job_attempts import commands_of, needs_root
from package_index import PackageIndex
from waiting import until

pytestmark = [needs_root, pytest.mark.slow]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Releases of jax; nightly versions are in an index of their own."""
    releases, nightly = PackageIndex(tmp_path / "releases"), PackageIndex(tmp_path / "nightly")
    releases.add("jax", "98.1.0")
    nightly.add("jax", "98.2.0.dev20260101")
    monkeypatch.setenv("UV_DEFAULT_INDEX", releases.url)
    monkeypatch.setattr(environment, "_NIGHTLY", nightly.url)
    yield releases
    releases.close()
    nightly.close()


def test_the_requested_version_of_jax_replaces_the_locked_version_and_is_recorded(index, prepare, caplog):
    """Also where the index of releases has a higher version: an index never takes a package of another one."""
    caplog.set_level(logging.INFO)
    index.add("jax", "99.0.0.dev20260102")
    prepared = prepare(jax_version="nightly")
    assert prepared.ran["jax_version"] == "98.2.0.dev20260101"
    code = "import jax, numpy; print(jax.__version__)"
    done = subprocess.run([prepared.python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "98.2.0.dev20260101"
    folder = os.path.dirname(os.path.dirname(prepared.python))
    assert ".uv-cache" not in os.listdir(folder)  # no downloads are left
    with open(f"{folder}/installed.lock", encoding="utf-8") as file:
        lock = file.read()
    assert re.fullmatch(r"jax==98\.2\.0\.dev20260101 \\\n    --hash=sha256:[0-9a-f]{64}\n", lock)
    assert lock.strip() in caplog.text


@pytest.mark.long
def test_the_newest_version_of_jax_is_a_release(index, prepare):
    assert prepare(1, jax_version="newest").ran["jax_version"] == "98.1.0"


def test_the_newest_version_of_jax_is_installed_again_for_each_version_of_the_source():
    digests = [environment.environment_digest({"jax_version": "newest"}, version) for version in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_a_version_of_jax_that_the_index_lacks_is_named(index, prepare):
    with pytest.raises(SourceFailed, match=r"Failed to install jax 97\.0\.0: .*") as failed:
        prepare(jax_version="97.0.0")
    assert failed.value.cause == "setup" and "\n" not in failed.value.reason


def test_the_agent_writes_no_file_through_the_links_of_a_setup_script(prepare, tmp_path):
    victim = tmp_path / "home" / "host-secret"
    script = f"""
    cd "$VIRTUAL_ENV"
    for name in complete setup.sh pyvenv.cfg lib/python3*/site-packages/locked-packages.pth; do
      rm -f $name; ln -s {victim} $name
    done
    ln -s / root
    chmod 4755 bin/activate
    """
    prepared = prepare(setup_script=script)
    folder = os.path.dirname(os.path.dirname(prepared.python))
    found = os.stat(victim)
    assert victim.read_text() == "5e" * 32 and (found.st_uid, found.st_mode & 0o777) == (0, 0o600)
    assert os.stat(f"{folder}/bin/activate").st_mode & 0o7000 == 0
    assert os.stat("/").st_uid == 0


def test_a_slow_preparation_delays_no_job_without_a_setup_script(prepare, tmp_path):
    stop = threading.Event()
    failed = []

    def prepare_slowly():
        try:
            prepare(2, stop, setup_script="sleep 1000")
        except SourceFailed as error:
            failed.append(error.cause)

    thread = threading.Thread(target=prepare_slowly)
    thread.start()
    until(lambda: "sleep 1000" in commands_of(tmp_path / "home"))
    assert prepare(config_file={"name": "a", "text": "b"}).environment["JOB_CONFIG"]
    assert thread.is_alive()
    stop.set()
    thread.join()
    assert failed == ["machine"]


def test_the_least_recently_used_environments_are_removed_unless_they_are_in_use(prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(sealed, "_KEPT", 1)
    monkeypatch.setattr(environment.Environments, "_make", lambda self, folder, *_: os.makedirs(f"{folder}/bin"))
    monkeypatch.setattr(environment.Environments, "jax_version", lambda *_: None)
    held, folder = prepare(setup_script="true # held"), tmp_path / "home" / "jobs" / "environments"
    for number in range(2):
        prepare(setup_script=f"true # {number}")
    assert len(list(folder.iterdir())) == 2 and os.path.exists(os.path.dirname(held.python))
    del held
    prepare(setup_script="true # last")
    assert len(list(folder.iterdir())) == 1
