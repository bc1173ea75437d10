"""The user that runs jobs, and the block of the metadata server for this user."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from gleaner_worker.jobs import user as users
from gleaner_worker.jobs.user import FIRST_UID, NotIsolated, find_job_user, make_folder
from job_attempts import needs_root

LOCAL = {"GCE_METADATA_HOST": "127.0.0.1:1"}
V4 = "-d 169.254.0.0/16 -p tcp ! --dport 53 -m owner --uid-owner 1-4294967294 -j REJECT"
V6 = "-d fd20:ce::254/128 -p tcp ! --dport 53 -m owner --uid-owner 1-4294967294 -j REJECT"

# Keeps the rules in a file, as the kernel does. Exits as iptables does for a rule that is absent.
PROGRAM = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >> "$(dirname "$0")/calls"
rule="$(basename "$0") ${*:4}"
case $3 in
  -C) grep -qxF -- "$rule" "$(dirname "$0")/rules" ;;
  -I) echo "$rule" >> "$(dirname "$0")/rules" ;;
  *) exit 2 ;;
esac
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """programs(text) puts iptables and ip6tables on PATH, and returns their folder."""

    def make(text=PROGRAM, names=("iptables", "ip6tables")):
        for name in names:
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        (tmp_path / "rules").touch()
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.setattr("gleaner_worker.jobs.user.has_ipv6", lambda: True)
        return tmp_path

    return make


@needs_root
def test_no_two_users_of_a_boot_have_the_same_uid(tmp_path, monkeypatch):
    monkeypatch.setattr(users, "_NEXT_UID", str(tmp_path / "next"))
    found = [find_job_user(LOCAL | {"GLEANER_HOME": "/tmp/x"}) for _ in range(2)]
    assert [(user.uid, user.gid, user.is_isolated, user.home) for user in found] == [
        (uid, uid, True, "/tmp/x") for uid in (FIRST_UID, FIRST_UID + 1)
    ]
    (tmp_path / "next").write_text(f"{users._LAST_UID + 1}\n")
    with pytest.raises(NotIsolated, match="restart this machine"):
        find_job_user(LOCAL)


@needs_root
@pytest.mark.parametrize("env", [LOCAL, {}], ids=["the local cloud", "a VM"])
def test_a_host_without_namespaces_runs_no_job(programs, monkeypatch, env):
    programs("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n", ["unshare"])
    monkeypatch.setattr(users, "_require_namespaces", users._require_namespaces.__wrapped__)
    with pytest.raises(NotIsolated) as refused:
        find_job_user(env)
    assert str(refused.value) == (
        "Failed to isolate jobs: unshare exited with 1: unshare: unshare failed: Operation not permitted; "
        "use a Linux image whose root makes namespaces, or set GLEANER_JOB_ISOLATION=none on the local cloud"
    )


def test_jobs_without_root_are_refused_with_one_line(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotIsolated) as refused:
        find_job_user(LOCAL)
    assert str(refused.value) == (
        "Failed to isolate jobs: the agent runs without root; "
        "start the agent as root, or set GLEANER_JOB_ISOLATION=none on the local cloud"
    )


def test_the_local_cloud_alone_may_run_jobs_as_the_user_of_the_agent():
    user = find_job_user(LOCAL | {"GLEANER_JOB_ISOLATION": "none"})
    assert (user.uid, user.is_isolated) == (os.geteuid(), False)
    with pytest.raises(NotIsolated, match="GLEANER_JOB_ISOLATION=none is for the local cloud alone; remove it"):
        find_job_user({"GLEANER_JOB_ISOLATION": "none"})
    with pytest.raises(NotIsolated, match="GLEANER_JOB_ISOLATION is 'no'; set user or none"):
        find_job_user(LOCAL | {"GLEANER_JOB_ISOLATION": "no"})


@needs_root
def test_a_vm_blocks_the_metadata_server_once(programs):
    folder = programs()
    find_job_user({})
    rules = [f"iptables OUTPUT {V4}", f"ip6tables OUTPUT {V6}"]
    assert (folder / "rules").read_text().splitlines() == rules
    assert (folder / "calls").read_text().splitlines() == [
        f"iptables -w 10 -C OUTPUT {V4}",
        f"iptables -w 10 -I OUTPUT {V4}",
        f"ip6tables -w 10 -C OUTPUT {V6}",
        f"ip6tables -w 10 -I OUTPUT {V6}",
    ]
    find_job_user({})
    assert (folder / "rules").read_text().splitlines() == rules


@needs_root
@pytest.mark.parametrize(
    ("refusing", "accepting", "missing"),
    [
        (["iptables"], ["ip6tables"], "iptables"),
        ([], ["ip6tables"], "iptables"),
        ([], ["iptables"], "ip6tables"),
    ],
    ids=["iptables refuses", "iptables is missing", "ip6tables is missing"],
)
def test_a_vm_whose_metadata_server_stays_open_runs_no_job(programs, refusing, accepting, missing):
    programs(names=accepting)
    programs("#!/bin/sh\necho 'Permission denied (you must be root)' >&2\nexit 4\n", refusing)
    with pytest.raises(
        NotIsolated, match=f"Failed to block the metadata server for jobs: {missing}.*install {missing}"
    ):
        find_job_user({})


@needs_root
def test_chips_of_root_are_opened_to_the_group_of_all_users_of_jobs(programs, monkeypatch):
    folder = programs()
    for name, mode in (("accel0", 0o600), ("accel1", 0o666)):
        (folder / name).touch()
        (folder / name).chmod(mode)
    monkeypatch.setattr("gleaner_worker.jobs.user._CHIPS", (f"{folder}/accel*",))
    user = find_job_user({})
    chips = [os.stat(folder / name) for name in ("accel0", "accel1")]
    assert [(chip.st_uid, chip.st_gid, chip.st_mode & 0o777) for chip in chips] == [
        (0, user.groups[0], 0o660),
        (0, 0, 0o666),
    ]


@needs_root
def test_a_new_folder_belongs_to_the_user_and_its_parents_to_the_agent(tmp_path):
    user = find_job_user(LOCAL)
    path = make_folder(str(tmp_path / "a" / "b"), user)
    assert (os.stat(path).st_uid, os.stat(path).st_mode & 0o777) == (user.uid, 0o700)
    assert os.stat(tmp_path / "a").st_uid == 0
    with pytest.raises(FileExistsError):
        make_folder(path, user)


# In a network namespace: servers at ports 80 and 53 of the metadata server's address, and the users that reach them.
CONNECT = """
import json, os, socket, subprocess
from gleaner_worker.jobs.user import find_job_user
subprocess.run('ip link set lo up; ip address add 169.254.169.254/32 dev lo', shell=True, check=True)
servers = [socket.create_server(('169.254.169.254', port)) for port in (80, 53)]
for _ in range(2):
    uid = find_job_user({}).uid
users = {'root': 0, 'service': 101, 'job': uid}
rules = subprocess.run(['iptables', '-S', 'OUTPUT'], capture_output=True, text=True, check=True).stdout
found = {'rules': rules.count('--uid-owner')}
for user, uid in users.items():
    os.seteuid(0)
    os.seteuid(uid)
    for port in (80, 53):
        try:
            socket.create_connection(('169.254.169.254', port), timeout=60).close()
            found[f'{user}:{port}'] = True
        except OSError:
            found[f'{user}:{port}'] = False
print(json.dumps(found))
"""


@needs_root
@pytest.mark.skipif(not shutil.which("iptables"), reason="iptables is not installed")
def test_the_kernel_blocks_the_metadata_server_for_all_users_but_root():
    done = subprocess.run(["unshare", "-n", sys.executable, "-c", CONNECT], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "rules": 1,
        "root:80": True,
        "root:53": True,
        "service:80": False,
        "service:53": True,
        "job:80": False,
        "job:53": True,
    }
