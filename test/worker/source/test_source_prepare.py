"""The preparation of a job: environments, setup scripts, config files and folders in memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.jobs.user import FIRST_UID
from gleaner_worker.source.environment import environment_digest
from job_attempts import needs_root

pytestmark = [needs_root, pytest.mark.slow]


def test_a_job_without_settings_runs_in_the_locked_environment_of_the_agent(prepare):
    prepared = prepare()
    assert prepared.python == sys.executable and prepared.source_folder is None
    assert prepared.ran["jax_version"] and len(prepared.ran["environment"]) == 64


def test_a_setup_script_runs_once_and_again_where_a_reboot_left_its_environment_incomplete(prepare, caplog):
    caplog.set_level("INFO")
    script = """
    echo building the tokenizer
    mkdir -p "$VIRTUAL_ENV/share" && date +%N > "$VIRTUAL_ENV/share/ran"
    test "$(id -u)" != 0
    readlink /proc/self/ns/net > "$VIRTUAL_ENV/share/network"
    """
    prepared = prepare(setup_script=script)
    assert "building the tokenizer" in caplog.text
    folder = Path(prepared.python).parents[1]
    ran = (folder / "share" / "ran").read_text()
    assert (folder / "share" / "network").read_text().strip() != os.readlink("/proc/self/ns/net")
    assert prepare(2, setup_script=script).python == prepared.python
    assert (folder / "share" / "ran").read_text() == ran
    os.chown(folder / "complete", FIRST_UID, FIRST_UID)  # a mark of the script itself
    prepare(3, setup_script=script)
    assert (folder / "share" / "ran").read_text() != ran


def test_a_setup_script_that_changes_has_another_environment():
    digests = [environment_digest({"setup_script": script}, 1) for script in ("true", "true # changed", None)]
    assert len(set(digests)) == 3 and environment_digest({"setup_script": "true"}, 2) == digests[0]


def test_an_environment_has_the_locked_packages_and_no_job_can_change_it(prepare):
    prepared = prepare(setup_script="true")
    code = "import importlib.metadata as m, numpy, sys; print(m.version('jax'), sys.prefix)"
    done = subprocess.run([prepared.python, "-c", code], capture_output=True, text=True, check=True)
    version, prefix = done.stdout.split()
    assert version == prepared.ran["jax_version"]
    assert prefix == os.path.dirname(os.path.dirname(prepared.python))
    for path in (prefix, f"{prefix}/bin", f"{prefix}/pyvenv.cfg"):
        assert os.stat(path).st_uid == 0 and os.stat(path).st_mode & 0o022 == 0


def test_a_setup_script_that_fails_is_reported_with_its_last_line_and_leaves_no_environment(prepare, tmp_path):
    with pytest.raises(SourceFailed, match="The setup script failed: no such package") as failed:
        prepare(setup_script="echo 'no such package' >&2; exit 3")
    assert failed.value.cause == "setup"
    assert os.listdir(tmp_path / "home" / "jobs" / "environments") == []


def test_a_config_file_is_readable_for_the_job_and_its_path_is_in_job_config(prepare):
    prepared = prepare(config_file={"name": "bench.yaml", "text": "steps: 3\n"})
    path = prepared.environment["JOB_CONFIG"]
    assert os.path.basename(path) == "bench.yaml" and path in prepared.visible
    with open(path, encoding="utf-8") as file:
        assert file.read() == "steps: 3\n"
    again = prepare(2, config_file={"name": "bench.yaml", "text": "steps: 4\n"})
    assert again.environment["JOB_CONFIG"] != path


def test_a_folder_in_memory_is_one_of_the_attempt(prepare):
    assert (prepared := prepare(ramfs_dir="/mnt/ramfs")).ramfs == "/mnt/ramfs"
    assert prepared.environment["RAMFS_DIR"] == "/mnt/ramfs" and not os.path.exists("/mnt/ramfs")
    for path in ("/meta-llama/Llama-3.1-8B", "/mnt", "/mnt/../etc", "/mnt2/x"):
        with pytest.raises(SourceFailed, match=f"Failed to mount ramfs_dir {path}: name a folder below /mnt"):
            prepare(ramfs_dir=path)
