"""A VM that reaches a bucket, the metadata server and worker-api alone boots and works on its first lease."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from job_attempts import needs_root
from startup_script import SCRIPT, a_bundle, an_environment, start

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
needs_iptables = pytest.mark.skipif(
    not shutil.which("iptables") and "CI" not in os.environ, reason="iptables is not installed, and CI needs it"
)


def boot_alone(home, *options):
    command = [sys.executable, os.path.join(HERE, "..", "support", "vm_process.py"), str(home), *options]
    done = subprocess.run(["unshare", "--net", "--mount", *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_root
@needs_iptables
@pytest.mark.long
def test_a_vm_without_the_internet_boots_from_a_built_environment_to_its_first_shard(tiny_folder, tmp_path):
    node = [
        os.path.join(ROOT, "node_modules", ".bin", "node"),
        os.path.join(ROOT, "test/support/machine/worker-environment.ts"),
    ]
    built = json.loads(subprocess.run(node, stdout=subprocess.PIPE, check=True, timeout=600).stdout)
    found = boot_alone(tmp_path / "home", "--model", tiny_folder, "--archive", built["archive"])
    assert found["status"] == 0, found["console"]
    assert found["shards"] == ["activations/my-run/tpu_7/shard_0001.safetensors"]


@needs_root
@needs_iptables
def test_a_vm_without_the_internet_boots_from_its_bucket_to_its_first_shard(tiny_folder, tmp_path):
    found = boot_alone(tmp_path / "home", "--model", tiny_folder)
    assert found["status"] == 0, found["console"]
    assert found["shards"] == ["activations/my-run/tpu_7/shard_0001.safetensors"]
    assert {"lease", "release"} <= set(found["actions"]) and "setup-failed" not in found["actions"]
    assert found["fetched"][:2] == ["bundles", "environments"]
    assert set(found["fetched"][2:]) <= {"datasets", "activations"}
    assert "startup: Step of the boot: environment" in found["log"] and '"Exiting: ' in found["log"]
    root, users = {"0:80": True, "0:53": True}, {"1:80": False, "1:53": True, "65534:80": False, "65534:53": True}
    assert found["reached"] == root | users


def test_a_slow_bucket_delays_a_boot_whose_heartbeats_go_on(cloud, storage, home):
    a_bundle(storage, cloud, environment=an_environment(storage))

    def waits_for_a_heartbeat(request):
        if "environments" in request:
            cloud.wait(lambda asked: any(body.get("step") == "environment" for body in asked))

    storage.faults = waits_for_a_heartbeat
    result = start(cloud, storage, home)
    assert (result.returncode, result.stdout) == (0, "agent cpu False True\n"), result.stderr


# Runs as a VM with systemd: `systemd-run` writes its arguments, or fails.
UNIT = """
has_systemd() { true; }
systemd-run() { printf '%s\\n' "$@" > "$OUT"; return "${STATUS:-0}"; }
GLEANER_HOME=/home JAX_PLATFORMS=tpu PYTHONPATH=/bundle start_agent /environment/bin/python3 3>&2
"""


def run_unit(tmp_path, status):
    out = tmp_path / "arguments"
    env = os.environ | {"OUT": str(out), "STATUS": status}
    done = subprocess.run(
        ["bash", "-c", f"source '{SCRIPT}'; {UNIT}"], env=env, capture_output=True, text=True, timeout=60
    )
    return done, out.read_text().splitlines()


def test_the_agent_is_a_unit_of_its_own_without_needless_rights(tmp_path):
    done, arguments = run_unit(tmp_path, "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert arguments[-3:] == ["/environment/bin/python3", "-m", "gleaner_worker.agent"]
    assert {"--unit=gleaner-agent", "--collect", "--property=KillMode=mixed", "--property=OOMPolicy=continue"} <= set(
        arguments
    )
    assert {"--setenv=GLEANER_HOME=/home", "--setenv=JAX_PLATFORMS=tpu", "--setenv=PYTHONPATH=/bundle"} <= set(
        arguments
    )
    assert {"--property=Delegate=yes", "--setenv=GLEANER_CGROUP_DELEGATED=1"} <= set(arguments)  # for groups of jobs
    (bounds,) = [text for text in arguments if "CapabilityBoundingSet" in text]
    dropped = bounds.partition("=~")[2].split()
    assert {"CAP_SYS_MODULE", "CAP_SYS_BOOT"} <= set(dropped)
    needed = {"CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN", "CAP_SYS_RESOURCE"}
    assert not needed & set(dropped)


def test_the_agent_starts_in_the_script_where_systemd_refuses_its_unit(tmp_path):
    done, _ = run_unit(tmp_path, "1")
    assert "Failed to start the unit gleaner-agent" in done.stderr
    assert "/environment/bin/python3: No such file or directory" in done.stderr
