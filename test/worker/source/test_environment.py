"""The environment that startup.sh makes from a lock file, and its Python."""

import glob
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from environment import CACHE, WORKER
from gleaner_worker.jobs.prepared_code import visible_of
from gleaner_worker.jobs.user import find_job_user
from gleaner_worker.source.commands import Commands
from job_attempts import UV_CACHE, needs_root
from package_index import PackageIndex
from startup_script import ENVIRONMENT, SOURCE, a_lock, bash, begin_make, calls_of_uv, make
from waiting import until

pytestmark = pytest.mark.slow


def test_an_environment_is_made_once_per_lock_file(home, tmp_path):
    first = make(home, a_lock(tmp_path))
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1] == f"{home}/env/bin/python"
    calls = calls_of_uv(home)
    again = make(home, a_lock(tmp_path))
    assert again.stdout == first.stdout
    assert calls_of_uv(home) == calls
    changed = make(home, a_lock(tmp_path, "# something else\n"))
    assert changed.returncode == 0, changed.stderr
    assert len(calls_of_uv(home)) > len(calls)
    assert sorted(os.listdir(home)) == ["env", f"env-{ENVIRONMENT}", "uv-cache"]
    assert "--require-hashes" in calls


def test_bytecode_of_an_environment_is_valid_for_the_next_environment_of_the_same_lock_file(tmp_path):
    index = PackageIndex(tmp_path / "index")
    index.add("apples", "1.0")
    index.close()
    (wheel,) = (tmp_path / "index" / "apples").glob("*.whl")
    lock = a_lock(tmp_path, f"apples==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    settings = {"UV_CACHE_DIR": UV_CACHE, "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheel.parent)}
    command = f'{SOURCE}; "$(make_environment "$@")" -c "import apples; print(apples.__cached__, apples.__file__)"'
    bytecode = {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}

    def make_and_import():
        made = bash(command, str(tmp_path / "env"), str(lock), **(settings | bytecode))
        assert made.returncode == 0, made.stderr
        cached, file = made.stdout.split()
        return file, os.stat(cached).st_mtime_ns

    file, written = make_and_import()
    os.utime(file, (1e9, 1e9))  # as a file that was unpacked at another time
    shutil.rmtree(tmp_path / "env")
    assert make_and_import() == (file, written)


def test_packages_are_installed_from_wheels_alone(home, tmp_path):
    assert make(home, a_lock(tmp_path)).returncode == 0
    installs = [call for call in calls_of_uv(home).splitlines() if "pip sync" in call]
    assert installs and all("--no-build" in call for call in installs)


def test_a_missing_lock_file_is_reported_with_its_path(home, tmp_path):
    result = make(home, tmp_path / "no.lock")
    assert result.returncode != 0
    assert f"there is no lock file {tmp_path}/no.lock" in result.stderr


def test_a_killed_installation_leaves_no_environment(home, tmp_path):
    process = begin_make(home, a_lock(tmp_path), UV_WAITS_FOR="never")
    until(lambda: "pip sync" in calls_of_uv(home))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (home / "env").exists()
    assert len(os.listdir(home)) == 3  # the cache and the unfinished environment
    result = make(home, a_lock(tmp_path))
    assert result.returncode == 0, result.stderr
    assert sorted(os.listdir(home)) == ["env", f"env-{ENVIRONMENT}", "uv-cache"]


@needs_root
@pytest.mark.sample(1)  # installs no uv
@pytest.mark.parametrize(("umask", "has_uv"), [(0o077, True), (0o077, False), (0o000, False)])
def test_the_user_of_jobs_runs_uv_and_python_in_a_private_home_and_changes_neither(tmp_path, umask, has_uv):
    private, lock = tmp_path / "private", a_lock(tmp_path)
    environment, cache, agent = private / "env", private / "uv", private / "agent"
    (agent / "job").mkdir(parents=True)
    private.chmod(0o700)
    user = find_job_user({"GCE_METADATA_HOST": "127.0.0.1:1", "GLEANER_HOME": str(agent)})
    os.chown(agent / "job", user.uid, user.gid)

    def make_and_run():
        command = f'umask {umask:o}; {SOURCE}; make_environment "$@"'
        made = bash(command, str(environment), str(lock), UV_CACHE_DIR=str(cache))
        assert made.returncode == 0, made.stderr
        python, (uv,) = made.stdout.splitlines()[-1], map(str, cache.glob("gleaner-uv-*/bin/uv"))
        script = '"$1" --version && "$2" --version && test ! -w "$1" -a ! -w "${1%/*}" -a ! -w "${2%/*}"'
        job = ["bash", "-c", script, "job", uv, python]
        visible = [*visible_of(python), os.path.dirname(uv)]
        ran = Commands(user, threading.Event()).run(job, str(agent / "job"), 60, visible=visible)
        assert ran.is_success, ran.output

    if has_uv:
        for folder in glob.glob(f"{UV_CACHE}/gleaner-uv-*"):
            shutil.copytree(folder, cache / os.path.basename(folder))
        subprocess.run(["chmod", "-R", "go=", cache], check=True)
    make_and_run()
    if umask:
        subprocess.run(["chmod", "-R", "go=", environment, *cache.glob("gleaner-uv-*")], check=True)
        make_and_run()
    assert private.stat().st_mode & 0o777 == 0o700


def a_source_package(folder, marker):
    """A source package whose build writes `marker` and fails. Returns the line of a lock file that pins it."""
    build = f"open({str(marker)!r}, 'w').close()\nraise SystemExit('built')\n"
    system = '[build-system]\nrequires = []\nbuild-backend = "build"\nbackend-path = ["."]\n'
    archive = folder / "uv-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in {"build.py": build, "pyproject.toml": system, "PKG-INFO": "Name: uv\nVersion: 1.0\n"}.items():
            member = tarfile.TarInfo(f"uv-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return f"uv==1.0 --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}\n"


def test_the_installation_of_uv_builds_no_source_package(tmp_path):
    marker = tmp_path / "marker"
    lock = a_lock(tmp_path, a_source_package(tmp_path, marker))
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    install = f'{SOURCE}; ensure_uv "$1"'
    result = bash(install, str(lock), UV_CACHE_DIR=str(tmp_path / "cache"), **settings)
    assert result.returncode != 0
    assert "No matching distribution found for uv==1.0" in result.stderr
    assert "Failed to install uv with pip: see the message above" in result.stderr
    assert not marker.exists()


def a_wheel(folder):
    """A wheel of a uv that says its version. Returns the line of a lock file that pins it."""
    path = folder / "uv-1.0-py3-none-any.whl"
    files = {
        "uv-1.0.data/scripts/uv": "#!/bin/sh\necho uv 1.0\n",
        "uv-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: uv\nVersion: 1.0\n",
        "uv-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o100755 << 16
            wheel.writestr(member, text)
        wheel.writestr("uv-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
    return f"uv==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


PYTHON_OF_UBUNTU = next(iter(glob.glob(os.path.expanduser("~/.pyenv/versions/3.10.*/bin/python3"))), None)


@pytest.mark.long
@pytest.mark.skipif(not PYTHON_OF_UBUNTU, reason="Python 3.10, which Ubuntu 22.04 has, is not installed")
def test_the_pip_of_ubuntu_22_04_installs_uv(tmp_path):
    """Python 3.10 with pip 22.0.2, which knows fewer options than today's."""
    uv = f'$(UV_CACHE_DIR="{UV_CACHE}" ensure_uv "{WORKER}/uv-requirements.lock")'
    old = f'{SOURCE}; [[ -d $1/pip ]] || "{uv}" pip install --quiet --target "$1" --python "$2" pip==22.0.2'
    pip = os.path.join(CACHE, "pip-22.0.2")  # with its bytecode
    got = bash(old, pip, PYTHON_OF_UBUNTU, UV_CACHE_DIR=UV_CACHE)
    assert got.returncode == 0, got.stderr
    path = an_old_python(tmp_path)
    (tmp_path / "bin" / "python3").unlink()
    (tmp_path / "bin" / "python3").symlink_to(PYTHON_OF_UBUNTU)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    settings |= {"PATH": path, "PYENV_ROOT": str(tmp_path), "PYTHONPATH": pip}
    install = f'{SOURCE}; python3 -m pip --version; "$(ensure_uv "$1")" --version'
    result = bash(install, str(a_lock(tmp_path, a_wheel(tmp_path))), UV_CACHE_DIR=str(tmp_path / "cache"), **settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("pip 22.0.2 ") and result.stdout.endswith("\nuv 1.0\n")


def an_old_python(tmp_path):
    """A folder for PATH whose Pythons are all older than 3.12."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3", "python3.12", "python3.13", "python3.14"):
        (folder / name).write_text("#!/bin/bash\nexit 1\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_python_of_pyenv_makes_environments(tmp_path):
    program = tmp_path / "versions" / "3.12.1" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.symlink_to(os.path.realpath(sys.executable))
    find = f'{SOURCE}; ensure_python "no uv"'
    result = bash(find, PATH=an_old_python(tmp_path), PYENV_ROOT=str(tmp_path), UV_CACHE_DIR=str(tmp_path))
    assert (result.returncode, result.stdout) == (0, f"{program}\n"), result.stderr


def test_a_machine_without_a_new_python_and_without_a_download_is_told_what_to_install(tmp_path):
    find = f'{SOURCE}; ensure_python "$(UV_CACHE_DIR="{UV_CACHE}" ensure_uv "{WORKER}/uv-requirements.lock")"'
    settings = {"PATH": an_old_python(tmp_path), "PYENV_ROOT": str(tmp_path), "UV_CACHE_DIR": str(tmp_path)}
    result = bash(find, UV_OFFLINE="1", **settings)
    assert (result.returncode, result.stdout) == (1, "")
    assert "Failed to download Python 3.12: install Python 3.12 or newer" in result.stderr


def test_lock_files_pin_every_package_with_hashes_and_name_no_host():
    for folder, name in [
        (WORKER, n) for n in ("requirements.lock", "requirements-tpu.lock", "uv-requirements.lock")
    ] + [(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "requirements.lock")]:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line and not line.lstrip().startswith("#")]
        lines = [line for line in lines if not line.startswith("-r ")]
        assert not any("://" in line or line.lstrip().startswith("-i") for line in lines)
        packages = [index for index, line in enumerate(lines) if not line.startswith(" ")]
        for begin, end in zip(packages, [*packages[1:], len(lines)], strict=True):
            assert "==" in lines[begin]
            assert end > begin + 1 and all("--hash=sha256:" in line for line in lines[begin + 1 : end])
