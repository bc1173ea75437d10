"""Evidence of a failed boot. The environment comes over a bad network, to a small disk and at a wrong time."""

import os
import re
import signal
import subprocess

import pytest

from build import BUCKET
from job_attempts import needs_root
from startup_script import a_bundle, add, an_environment, begin, end, start
from waiting import until

pytestmark = pytest.mark.slow

LOG = "logs/tpu-us-central1-a-0/3.log"


def failures(cloud):
    return [body for body in cloud.asked if body["action"] == "setup-failed"]


def assert_failed(cloud, storage, result, reason):
    """worker-api has the reason, and the bucket has the log."""
    assert result.returncode == 1 and "agent" not in result.stdout
    (failure,) = failures(cloud)
    assert failure.keys() == {"action", "worker", "incarnation", "host", "reason"}
    assert re.search(reason, failure["reason"]), failure["reason"]
    log = storage.data(BUCKET, LOG).decode()
    assert re.search(reason, log) and log.endswith("startup: The boot ends with status 1\n")


def test_a_failed_boot_reports_its_reason_and_stores_the_last_200_lines_of_its_log(cloud, storage, home):
    (home / "host.log").write_text("".join(f"line {number}\n" for number in range(2000)))
    a_bundle(storage, cloud, environment=f"{'f' * 16} - 0\n")
    assert_failed(cloud, storage, start(cloud, storage, home), r"there is no environment \S+/env-ffff")
    log = storage.data(BUCKET, LOG)
    assert b"Step of the boot: environment" in log and len(log.splitlines()) == 200
    assert len((home / "host.log").read_text().splitlines()) < 1100
    assert len(cloud.hellos) >= 1


def test_an_agent_that_cannot_be_imported_fails_its_boot_with_the_error(cloud, storage, home):
    def broken(tar):
        add(tar, "gleaner_worker/agent/agent.py", b'raise ImportError("no \\"module\\" \\\\ \\x00 here\\x1b[31m")')

    a_bundle(storage, cloud, broken)
    result = start(cloud, storage, home)
    assert_failed(cloud, storage, result, "Failed to import the agent")
    assert re.search("ImportError: no 'module' / +here +\\[31m$", failures(cloud)[0]["reason"])


def test_a_failure_is_reported_after_a_hello_where_the_secret_is_not_known(cloud, storage, home):
    cloud.status = lambda body: 200 if body["action"] == "hello" or len(cloud.hellos) > 1 else 403
    cloud.refusal = {"error": "the secret is not that of host 0"}
    a_bundle(storage, cloud, environment=None)
    start(cloud, storage, home)
    assert [body["reason"] for body in failures(cloud)][-1].endswith("names no environment")
    assert len(failures(cloud)) == 2 and len(cloud.hellos) >= 2


def test_a_boot_that_a_preemption_ends_reports_no_failure(cloud, storage, home):
    a_bundle(storage, cloud, environment=None)
    cloud.preempted = True
    assert start(cloud, storage, home).returncode == 1
    assert failures(cloud) == []
    assert "names no environment" in storage.data(BUCKET, LOG).decode()


@pytest.mark.parametrize("whole", [True, False], ids=["the group", "the script"])
def test_a_boot_that_is_told_to_end_reports_no_failure(cloud, storage, home, tmp_path, whole):
    a_bundle(storage, cloud)
    process = begin(cloud, storage, home, AGENT_WAITS_FOR=str(tmp_path / "never"))
    until((tmp_path / "never.begun").exists)
    if whole:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.send_signal(signal.SIGTERM)
        (tmp_path / "never").touch()
    assert end(process).returncode == 143
    assert failures(cloud) == []
    assert "The boot ends with status 143" in storage.data(BUCKET, LOG).decode()


def test_heartbeats_name_the_step_of_the_boot(cloud, storage, home, tmp_path):
    a_bundle(storage, cloud)
    may_end = tmp_path / "may-end"

    def status(body):
        if body.get("step") == "agent":
            may_end.touch()
        return 200

    cloud.status = status
    assert start(cloud, storage, home, AGENT_WAITS_FOR=str(may_end)).returncode == 0
    steps = [body["step"] for body in cloud.asked]
    assert steps[-1] == "agent" and set(steps) <= {"metadata", "bundle", "environment", "agent"}


def test_the_archive_of_the_environment_is_fetched_once(cloud, storage, home):
    a_bundle(storage, cloud, environment=an_environment(storage))
    first = start(cloud, storage, home)
    assert (first.returncode, first.stdout) == (0, "agent cpu False True\n"), first.stderr
    assert sorted(path.name for path in home.glob("e*")) == ["env-" + "a" * 16, "env-" + "e" * 16]
    assert os.readlink(home / ("env-" + "a" * 16) / "bin" / "python3") == "python3.12"
    requests = len(storage.requests)
    assert start(cloud, storage, home).returncode == 0
    assert len(storage.requests) == requests
    assert failures(cloud) == []


@pytest.mark.long
def test_vms_of_one_machine_share_environments(cloud, storage, home, tmp_path):
    a_bundle(storage, cloud, environment=an_environment(storage))
    shared = tmp_path / "shared"
    assert start(cloud, storage, home, GLEANER_ENVIRONMENTS=str(shared)).returncode == 0
    assert [path.name for path in shared.iterdir()] == ["env-" + "a" * 16]
    assert [path.name for path in home.glob("env-*")] == ["env-" + "e" * 16]


def test_a_transfer_that_breaks_off_is_continued(cloud, storage, home):
    line = an_environment(storage, padding=300_000)
    a_bundle(storage, cloud, environment=line)
    size, sent = int(line.split()[2]), []

    def breaks_off_twice(request):
        if "environments" in request:
            sent.append(request)
            return "half" if len(sent) < 3 else None
        return None

    storage.faults = breaks_off_twice
    result = start(cloud, storage, home)
    assert result.returncode == 0, result.stderr
    half = size // 2
    assert storage.ranges == [(half, size - 1), (half + (size - half) // 2, size - 1)]


def test_an_archive_of_another_sha256_is_refused(cloud, storage, home):
    line = an_environment(storage)
    name = f"environments/{line.split()[1]}.tar.gz"
    storage.put(BUCKET, name, storage.data(BUCKET, name) + b"x")
    a_bundle(storage, cloud, environment=line)
    assert_failed(cloud, storage, start(cloud, storage, home), f"Failed to use gs://{BUCKET}/{name}: its sha256 is")
    assert not (home / ("env-" + "a" * 16)).exists() and not (home / "environment.tar.gz").exists()


def test_an_archive_that_is_not_in_the_bucket_fails_at_once(cloud, storage, home):
    a_bundle(storage, cloud, environment=f"{'a' * 16} {'b' * 64} 100\n")
    assert_failed(cloud, storage, start(cloud, storage, home), "the bucket has no such object; deploy again")
    assert len([request for request in storage.requests if "environments" in request]) == 1


def test_a_disk_without_room_for_the_environment_is_found_before_the_download(cloud, storage, home):
    a_bundle(storage, cloud, environment=an_environment(storage, size=999_999_999_999))
    assert_failed(cloud, storage, start(cloud, storage, home), "MiB free, and 3814697 MiB are needed")
    assert not any("environments" in request for request in storage.requests)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@needs_root
def test_a_disk_that_fills_during_the_boot_is_reported(cloud, storage, home, small_disk):
    """The disk has room for half of the archive, whose size the bundle understates."""
    a_bundle(storage, cloud, environment=an_environment(storage, size=10, padding=2_000_000))
    result = start(cloud, storage, home, GLEANER_HOME=str(small_disk))
    assert_failed(cloud, storage, result, "Failed to write gs://")


@needs_root
def test_a_full_disk_is_reported_with_a_secret_in_memory_alone(cloud, storage, home, small_disk):
    a_bundle(storage, cloud)
    (small_disk / "full").write_bytes(bytes(2**20))
    result = start(cloud, storage, home, GLEANER_HOME=str(small_disk))
    assert result.returncode == 1 and "No space left on device" in result.stderr
    assert [body["reason"] for body in failures(cloud)] == [f"Failed to write {small_disk}/host-secret"]
    (secret,) = cloud.secrets
    assert re.fullmatch("[0-9a-f]{64}", secret)


@pytest.mark.long
def test_a_clock_that_is_an_hour_off_changes_nothing(cloud, storage, home, tmp_path):
    """Only the times of log lines come from the clock."""
    shim = tmp_path / "bin" / "date"
    shim.parent.mkdir()
    shim.write_text('#!/bin/bash\nexec /bin/date -d "-1 hour" "$@"\n')
    shim.chmod(0o755)
    a_bundle(storage, cloud, environment=an_environment(storage))
    result = start(cloud, storage, home, PATH=f"{shim.parent}:{os.environ['PATH']}")
    assert (result.returncode, result.stdout) == (0, "agent cpu False True\n"), result.stderr
