"""startup.sh, run and sourced, with a stand-in for uv: no test here needs the network."""

import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from build import BUCKET
from environment import WORKER

pytestmark = pytest.mark.slow

SCRIPT = os.path.join(WORKER, "startup.sh")


@pytest.fixture
def home(tmp_path):
    """A home in which uv is there already: a stand-in that makes the folder of an environment, as slowly as asked."""
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


def test_the_script_is_clean_for_shellcheck():
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    result = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_sourced_it_only_defines_its_functions():
    result = bash(f"source {SCRIPT}; declare -F main make_environment")
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["main", "make_environment"], "")


def test_memory_that_is_freed_is_used_again_and_asks_the_kernel_for_nothing():
    faults = """
import resource
for size in [100_000_000] * 3:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"1" * size
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    kept = bash(f'source {SCRIPT}; keep_memory; exec "$@"', sys.executable, "-c", faults)
    first, *others = map(int, kept.stdout.split())
    assert first > 10_000 and max(others) < 1000, kept.stdout + kept.stderr


def test_an_environment_is_made_once_per_lock(home, tmp_path):
    first = make(home, a_lock(tmp_path))
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1] == f"{home}/env/bin/python"
    calls = (tmp_path / "uv-calls").read_text()
    again = make(home, a_lock(tmp_path))
    assert again.stdout == first.stdout
    assert (tmp_path / "uv-calls").read_text() == calls
    changed = make(home, a_lock(tmp_path, "# something else\n"))
    assert changed.returncode == 0, changed.stderr
    assert len((tmp_path / "uv-calls").read_text()) > len(calls)
    assert sorted(os.listdir(home)) == ["env", "uv-cache"]
    assert "--require-hashes" in calls


def test_a_lock_that_is_not_there_is_named(home, tmp_path):
    result = make(home, tmp_path / "no.lock")
    assert result.returncode != 0
    assert f"there is no lock file {tmp_path}/no.lock" in result.stderr


def test_an_environment_that_was_killed_half_made_does_not_exist(home, tmp_path):
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            f'source {SCRIPT}; make_environment "$@"',
            "_",
            str(home / "env"),
            str(a_lock(tmp_path)),
        ],
        env=os.environ | {"GLEANER_HOME": str(home), "UV_CACHE_DIR": str(home / "uv-cache"), "UV_SLOW": "60"},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while "pip sync" not in ((tmp_path / "uv-calls").read_text() if (tmp_path / "uv-calls").exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (home / "env").exists()
    assert len(os.listdir(home)) == 2  # the cache, and the half-made one
    result = make(home, a_lock(tmp_path))
    assert result.returncode == 0, result.stderr
    assert sorted(os.listdir(home)) == ["env", "uv-cache"]


def apt(tmp_path, script, **env):
    (tmp_path / "apt-get").write_text(f"#!/bin/bash\necho call >> {tmp_path}/calls\n{script}\n")
    (tmp_path / "apt-get").chmod(0o755)
    return bash(f"source {SCRIPT}; apt_install python3.11", PATH=f"{tmp_path}:{os.environ['PATH']}", **env)


def test_another_apt_is_waited_for(tmp_path):
    result = apt(tmp_path, f'(($(wc -l < {tmp_path}/calls) > 1)) || {{ echo "Could not get lock" >&2; exit 100; }}')
    assert result.returncode == 0, result.stderr
    assert "Could not get lock" in result.stderr


def test_another_apt_is_not_waited_for_for_ever(tmp_path):
    result = apt(tmp_path, "exit 100", APT_LOCK_WAIT_S="1")
    assert result.returncode != 0
    assert "Failed to install python3.11 in 1 s: see apt's message above" in result.stderr


def start(cloud, storage, home, **env):
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
        capture_output=True,
        text=True,
        timeout=120,
    )


def a_bundle(storage, cloud, change=lambda tar: None):
    """A bundle whose agent says who started it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        says = "'agent', os.environ['JAX_PLATFORMS'], 'PYTHONDONTWRITEBYTECODE' in os.environ, sys.flags.safe_path"
        agent = f"import os, sys; print({says})".encode()
        for name, text in {
            "gleaner_worker/__init__.py": b"",
            "gleaner_worker/agent.py": agent,
            "requirements.lock": b"# cpu\n",
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        tar.add(os.path.join(WORKER, "uv-requirements.lock"), "uv-requirements.lock")
        change(tar)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    storage.put(BUCKET, f"bundles/{digest}.tar.gz", buffer.getvalue())
    cloud.attributes["gleaner-bundle"] = digest
    return digest


def test_it_fetches_the_bundle_and_becomes_the_agent(cloud, storage, home):
    digest = a_bundle(storage, cloud)
    result = start(cloud, storage, home, PYTHONDONTWRITEBYTECODE="1", UV_SLOW="2")  # time for a heartbeat
    assert result.returncode == 0, result.stderr
    assert result.stdout == "agent cpu False True\n"
    cloud.wait(lambda asked: asked)
    assert cloud.asked[0] == {
        "action": "heartbeat",
        "worker": "tpu-us-central1-a-0",
        "incarnation": 3,
        "host": 0,
        "phase": "setup",
        "lease": None,
        "progress": None,
    }
    assert (home / f"bundle-{digest}" / "gleaner_worker" / "agent.py").exists()
    requests = len(storage.requests)
    assert start(cloud, storage, home).returncode == 0
    assert len(storage.requests) == requests  # at the next boot everything is there


def test_no_argument_of_a_command_holds_a_token_or_the_address_of_the_metadata_server(cloud, storage, home, tmp_path):
    a_bundle(storage, cloud)
    shim = tmp_path / "bin" / "curl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/bash\necho "$*" >> {tmp_path}/arguments\nexec {shutil.which("curl")} "$@"\n')
    shim.chmod(0o755)
    result = start(cloud, storage, home, PATH=f"{shim.parent}:{os.environ['PATH']}", UV_SLOW="2")
    assert result.returncode == 0, result.stderr
    cloud.wait(lambda asked: asked)
    arguments = (tmp_path / "arguments").read_text()
    assert "bundles%2F" in arguments and "--data" in arguments
    assert [word for word in ("Bearer", "computeMetadata", "an.identity") if word in arguments] == []


def test_environments_are_kept_where_vms_of_one_machine_share_them(cloud, storage, home, tmp_path):
    a_bundle(storage, cloud)
    shared = tmp_path / "shared"
    assert start(cloud, storage, home, GLEANER_ENVIRONMENTS=str(shared)).returncode == 0
    assert [path.name[:4] for path in shared.iterdir()] == ["env-"]
    assert not list(home.glob("env-*"))


@pytest.mark.parametrize(
    "missing",
    [
        "agent-worker-number",
        "gleaner-worker",
        "gleaner-incarnation",
        "gleaner-api",
        "gleaner-bucket",
        "gleaner-bundle",
    ],
)
def test_an_attribute_that_is_missing_is_named(cloud, storage, home, missing):
    a_bundle(storage, cloud)
    del cloud.attributes[missing]
    result = start(cloud, storage, home)
    assert result.returncode != 0
    assert f"metadata attribute {missing} is missing" in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gleaner-worker", 'a","phase":"x'),
        ("agent-worker-number", "-1"),
        ("gleaner-bundle", "../../x"),
        ("gleaner-bucket", "b/../c"),
    ],
)
def test_an_attribute_that_could_not_be_right_is_refused(cloud, storage, home, name, value):
    a_bundle(storage, cloud)
    cloud.attributes[name] = value
    result = start(cloud, storage, home)
    assert result.returncode != 0
    assert f"metadata attribute {name} is '{value}', which does not match" in result.stderr


def test_a_bundle_of_another_sha256_is_not_unpacked(cloud, storage, home):
    digest = a_bundle(storage, cloud)
    name = f"bundles/{digest}.tar.gz"
    storage.put(BUCKET, name, storage.data(BUCKET, name) + b"x")
    result = start(cloud, storage, home)
    assert result.returncode != 0
    assert f"Failed to use the worker bundle {digest}: its sha256 is" in result.stderr
    assert not (home / f"bundle-{digest}").exists()


def link(tar):
    member = tarfile.TarInfo("link")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    tar.addfile(member)


def many_after(add):
    """So many that what lists them is not done when the first is found."""

    def change(tar):
        add(tar)
        for number in range(20_000):
            tar.addfile(tarfile.TarInfo(f"file-{number}"))

    return change


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tar: tar.addfile(tarfile.TarInfo("../outside")), "a path that leads out of it"),
        (lambda tar: tar.addfile(tarfile.TarInfo("/etc/outside")), "a path that leads out of it"),
        (link, "something that is no file or folder"),
        (many_after(link), "something that is no file or folder"),
        (many_after(lambda tar: tar.addfile(tarfile.TarInfo("../outside"))), "a path that leads out of it"),
    ],
)
def test_a_bundle_that_reaches_outside_is_not_unpacked(cloud, storage, home, change, reason):
    digest = a_bundle(storage, cloud, change)
    result = start(cloud, storage, home)
    assert result.returncode != 0
    assert reason in result.stderr
    assert not (home / f"bundle-{digest}").exists()


def test_a_vm_that_is_not_wanted_stops_setting_up(cloud, storage, home):
    a_bundle(storage, cloud)
    cloud.on_heartbeat = lambda body: {"action": "exit", "reason": "gone"}
    result = start(cloud, storage, home, UV_SLOW="5")
    assert result.returncode != 0
    assert "not wanted any more" in result.stderr
    assert "agent" not in result.stdout


def test_the_locks_pin_every_package_with_hashes_and_name_no_host():
    for folder, name in [
        (WORKER, n) for n in ("requirements.lock", "requirements-tpu.lock", "uv-requirements.lock")
    ] + [(os.path.dirname(os.path.abspath(__file__)), "requirements.lock")]:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line and not line.lstrip().startswith("#")]
        assert not any("://" in line or line.lstrip().startswith("-i") for line in lines)
        packages = [index for index, line in enumerate(lines) if not line.startswith(" ")]
        for begin, end in zip(packages, [*packages[1:], len(lines)], strict=True):
            assert "==" in lines[begin]
            assert end > begin + 1 and all("--hash=sha256:" in line for line in lines[begin + 1 : end])


@pytest.mark.skipif(os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio"), reason="this machine has a TPU")
def test_a_vm_without_a_tpu_does_not_fall_back_to_its_cpu(cloud, storage, home):
    a_bundle(storage, cloud)
    result = start(cloud, storage, home, GLEANER_PLATFORM="")
    assert result.returncode != 0
    assert "this VM has no TPU" in result.stderr
    assert "agent" not in result.stdout
