"""startup.sh from the bundle to the agent, without a network."""

import os
import re
import shutil
import tarfile

import pytest

from build import BUCKET
from startup_script import SOURCE, a_bundle, bash, start, start_until_stopped

pytestmark = pytest.mark.slow


def test_the_sourced_script_only_defines_its_functions():
    result = bash(f"{SOURCE}; declare -F main make_environment")
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["main", "make_environment"], "")


@pytest.fixture
def first_heartbeat(cloud, tmp_path):
    """A file that exists after the first heartbeat."""
    path = tmp_path / "first-heartbeat"

    def status(body):
        if body["action"] == "heartbeat":
            path.touch()
        return 200

    cloud.status = status
    return str(path)


def test_the_script_fetches_the_bundle_and_becomes_the_agent(cloud, storage, home, first_heartbeat):
    digest = a_bundle(storage, cloud)
    result = start(cloud, storage, home, PYTHONDONTWRITEBYTECODE="1", AGENT_WAITS_FOR=first_heartbeat)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "agent cpu False True\n"
    cloud.wait(lambda asked: asked)
    hello = {"action": "hello", "worker": "tpu-us-central1-a-0", "incarnation": 3, "host": 0, "ticket": "T" * 43}
    assert cloud.hellos == [hello]
    assert cloud.asked[0] == {
        "action": "heartbeat",
        "worker": "tpu-us-central1-a-0",
        "incarnation": 3,
        "host": 0,
        "phase": "setup",
        "step": cloud.asked[0]["step"],
        "lease": None,
        "progress": None,
    }
    assert (home / f"bundle-{digest}" / "gleaner_worker" / "agent" / "__main__.py").exists()
    file = home / "host-secret"
    assert re.fullmatch(r"[0-9a-f]{64}\n", secret := file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    assert cloud.secrets == {secret.strip()}
    received = (home / "received").read_text()
    assert received == f"3 0 {len(storage.data(BUCKET, f'bundles/{digest}.tar.gz'))} 0\n"
    requests = len(storage.requests)
    assert start(cloud, storage, home).returncode == 0
    assert len(storage.requests) == requests  # the next boot downloads nothing
    assert file.read_text() == secret
    assert (home / "received").read_text() == received


def test_no_argument_of_a_command_holds_a_token_or_the_address_of_the_metadata_server(
    cloud, storage, home, tmp_path, first_heartbeat
):
    a_bundle(storage, cloud)
    shim = tmp_path / "bin" / "curl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/bash\necho "$*" >> {tmp_path}/arguments\nexec {shutil.which("curl")} "$@"\n')
    shim.chmod(0o755)
    result = start(cloud, storage, home, PATH=f"{shim.parent}:{os.environ['PATH']}", AGENT_WAITS_FOR=first_heartbeat)
    assert result.returncode == 0, result.stderr
    cloud.wait(lambda asked: asked)
    arguments = (tmp_path / "arguments").read_text()
    assert "bundles%2F" in arguments
    secret = (home / "host-secret").read_text().strip()
    words = ("Bearer", "computeMetadata", "an.identity", "T" * 43, secret, "heartbeat")
    assert [word for word in words if word in arguments] == []


def assert_stopped(result, *reasons):
    """The script has ended with these reasons and without an agent."""
    assert result.returncode != 0 and "agent" not in result.stdout
    assert [reason for reason in reasons if reason not in result.stderr] == []


def test_a_host_whose_hello_is_refused_stops_its_setup(cloud, storage, home):
    a_bundle(storage, cloud)
    cloud.refusal = {"action": "exit", "error": "another secret is bound to host 0"}
    cloud.status = lambda body: 403
    result = start_until_stopped(cloud, storage, home)
    assert_stopped(result, "Stopping: worker-api says", "another secret is bound to host 0")
    assert cloud.asked == []


ATTRIBUTES = {
    "agent-worker-number": "0",
    "gleaner-worker": "tpu-us-central1-a-0",
    "gleaner-incarnation": "3",
    "gleaner-ticket": "T" * 43,
    "gleaner-api": "https://worker-api.example/",
    "gleaner-bucket": "a-bucket",
    "gleaner-bundle": "0" * 64,
    "gleaner-logs-bucket": "a-bucket",
}
# Answers as `metadata` does: prints the values of attributes, and returns 22 at the first that is absent.
METADATA = """
metadata() {
  local path name
  for path; do
    name=${path##*/}
    name=ATTRIBUTE_${name//-/_}
    printf '%s\n' "${!name-}"
    [[ -n ${!name+set} ]] || return 22
  done
}
"""


def read_metadata(attributes):
    """Runs the check of the attributes alone, without a metadata server."""
    variables = {f"ATTRIBUTE_{name.replace('-', '_')}": value for name, value in attributes.items()}
    return bash(f"{SOURCE}; {METADATA} read_metadata; echo $WORKER $INCARNATION $API", **variables)


def test_the_attributes_of_the_metadata_server_are_read():
    result = read_metadata(ATTRIBUTES)
    assert (result.returncode, result.stdout) == (0, "tpu-us-central1-a-0 3 https://worker-api.example/\n")


@pytest.mark.parametrize("missing", ATTRIBUTES)
def test_a_missing_attribute_is_named(missing):
    result = read_metadata({name: value for name, value in ATTRIBUTES.items() if name != missing})
    assert (result.returncode, result.stdout) == (1, "")
    assert f"metadata attribute {missing} is missing" in result.stderr


def test_a_host_with_a_missing_attribute_does_not_start(cloud, storage, home):
    a_bundle(storage, cloud)
    del cloud.attributes["gleaner-bundle"]
    assert_stopped(start(cloud, storage, home), "metadata attribute gleaner-bundle is missing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gleaner-worker", 'a","phase":"x'),
        ("agent-worker-number", "-1"),
        ("gleaner-bundle", "../../x"),
        ("gleaner-bucket", "b/../c"),
        ("gleaner-ticket", "T" * 42),
        ("gleaner-api", "http://worker-api.example/"),
        ("gleaner-api", "http://127.0.0.1:80@worker-api.example/"),
        ("gleaner-api", "http://127.0.0.1.example/"),
        ("gleaner-api", "https://me@worker-api.example/"),
        ("gleaner-api", "file:///etc/passwd"),
    ],
)
def test_a_malformed_attribute_is_refused(name, value):
    result = read_metadata(ATTRIBUTES | {name: value})
    assert (result.returncode, result.stdout) == (1, "")
    assert f"metadata attribute {name} is '{value}', which does not match" in result.stderr


def test_every_user_reads_the_bundle_of_a_vm_with_a_strict_umask(cloud, storage, home):
    folder = home / f"bundle-{a_bundle(storage, cloud)}"
    assert start(cloud, storage, home, umask=0o077).returncode == 0
    assert all(path.stat().st_mode & 0o044 for path in [folder, *folder.rglob("*.py")])


def test_a_bundle_of_another_sha256_is_not_unpacked(cloud, storage, home):
    digest = a_bundle(storage, cloud)
    name = f"bundles/{digest}.tar.gz"
    storage.put(BUCKET, name, storage.data(BUCKET, name) + b"x")
    assert_stopped(start(cloud, storage, home), f"Failed to use gs://{BUCKET}/{name}: its sha256 is")
    assert not (home / f"bundle-{digest}").exists()


def member(name, kind, link=""):
    def change(tar):
        added = tarfile.TarInfo(name)
        added.type, added.linkname = kind, link
        tar.addfile(added)

    return change


UNSAFE = "something that is no file, no folder and no link inside of it"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tar: tar.addfile(tarfile.TarInfo("../outside")), "Failed to unpack"),
        (member("link", tarfile.SYMTYPE, "/etc"), UNSAFE),
        (member("link", tarfile.SYMTYPE, "../../outside"), UNSAFE),
        (member("pipe", tarfile.FIFOTYPE), UNSAFE),
    ],
)
def test_a_bundle_with_an_unsafe_member_is_not_unpacked(cloud, storage, home, change, reason):
    digest = a_bundle(storage, cloud, change)
    assert_stopped(start(cloud, storage, home), reason)
    assert not (home / f"bundle-{digest}").exists() and not (home / "outside").exists()


def test_an_absolute_path_in_a_bundle_stays_below_its_folder(cloud, storage, home):
    outside = home / "outside"
    digest = a_bundle(storage, cloud, lambda tar: tar.addfile(tarfile.TarInfo(str(outside))))
    assert start(cloud, storage, home).returncode == 0
    assert (home / f"bundle-{digest}" / outside.relative_to("/")).exists() and not outside.exists()


@pytest.mark.parametrize(
    ("environment", "reason"),
    [("", "names the environment '  '"), ("../x - 0\n", "names the environment '../x - 0'")],
)
def test_a_bundle_with_a_malformed_environment_is_refused(tmp_path, environment, reason):
    (tmp_path / "environment").write_text(environment)
    result = bash(f'{SOURCE}; BUNDLE=a-bundle fetch_environment "$1"', str(tmp_path), GLEANER_HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "") and reason in result.stderr


def test_a_vm_that_worker_api_no_longer_wants_stops_its_setup(cloud, storage, home):
    a_bundle(storage, cloud)
    cloud.on_heartbeat = lambda body: {"action": "exit", "reason": "gone"}
    assert_stopped(start_until_stopped(cloud, storage, home), "not wanted any more")
    assert {body["action"] for body in cloud.asked} == {"heartbeat"}  # no failure
    assert "not wanted any more" in storage.data(BUCKET, "logs/tpu-us-central1-a-0/3.log").decode()


@pytest.mark.skipif(os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio"), reason="this machine has a TPU")
def test_a_vm_without_a_tpu_does_not_use_its_cpu(cloud, storage, home):
    a_bundle(storage, cloud)
    assert_stopped(start(cloud, storage, home, GLEANER_PLATFORM=""), "this VM has no TPU")
