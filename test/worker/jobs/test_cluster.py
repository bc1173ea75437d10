"""Clusters of jobs: what each host finds in its environment, and processes of JAX on several hosts."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from build import BUCKET
from gleaner_worker.agent import job_work
from gleaner_worker.failures import Failure
from gleaner_worker.jobs.cluster import ONE_HOST, Cluster, cluster_of, lost_peer
from gleaner_worker.jobs.prepared_code import PreparedCode
from job_attempts import FOLDER, RAN, Jobs, needs_root, processes_of
from waiting import HANG_S, until

TPU_ENV = """ACCELERATOR_TYPE: 'v5litepod-8'
ALT: 'false'
CHIPS_PER_HOST_BOUNDS: '2,4,1'
MEGASCALE_COORDINATOR_ADDRESS: '10.9.9.9'
MEGASCALE_NUM_SLICES: '7'
TOPOLOGY: '2x4'
TPU_TOPOLOGY_WRAP: 'true,true'
BAD: '
"""
OF_TPU_ENV = {
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_CHIPS_PER_HOST_BOUNDS": "2,4,1",
    "TPU_TOPOLOGY": "2x4",
    "TPU_TOPOLOGY_WRAP": "true,true",
}
FATAL = "Terminating process because the JAX distributed service detected fatal errors."
LOOPBACK = "127.0.0.1"
needs_iptables = pytest.mark.skipif(
    not shutil.which("iptables") and "CI" not in os.environ, reason="iptables is not installed, and CI needs it"
)


def a_slice(host=0, hosts=2, **changes):
    addresses = [f"10.0.0.{number}" for number in range(hosts * changes.get("slices", 1))]
    return {"host": host, "hosts": hosts, "addresses": addresses, "port": 8482, "slice": 0, "slices": 1} | changes


OF_ONE_HOST = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_ID": "0",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_COORDINATOR_ADDRESS": "localhost:8482",
    "JAX_COORDINATOR_BIND_ADDRESS": "localhost:8482",
    "MEGASCALE_NUM_SLICES": "1",
    "MEGASCALE_SLICE_ID": "0",
}


def test_only_a_machine_without_a_tpu_has_no_settings_of_libtpu(cloud, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    cloud.attributes["accelerator-type"] = "v6e-8"
    assert job_work._machine_settings(ONE_HOST) == {}
    cloud.attributes["tpu-env"] = TPU_ENV
    assert job_work._machine_settings(ONE_HOST) == OF_TPU_ENV | OF_ONE_HOST
    cloud.attributes["tpu-env"] = b"nonsense\r\n\r\n"
    with pytest.raises(OSError, match="the metadata server's answer ended early"):
        job_work._machine_settings(ONE_HOST)


def test_an_instance_has_the_settings_of_its_accelerator_without_tpu_env(cloud, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    cloud.attributes["accelerator-type"] = "v6e-8"
    assert job_work._machine_settings(ONE_HOST) == OF_ONE_HOST | {
        "TPU_ACCELERATOR_TYPE": "v6e-8",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,4,1",
        "TPU_HOST_BOUNDS": "1,1,1",
    }


def test_a_host_of_several_slices_finds_its_slice_and_the_coordinator_of_all():
    cluster = cluster_of({"slice": a_slice(host=1, slice=1, slices=2)})
    coordinator = {"JAX_COORDINATOR_ADDRESS": "10.0.0.0:8482", "JAX_COORDINATOR_BIND_ADDRESS": "10.0.0.0:8482"}
    numbers = {"JOB_HOST": "3", "JOB_HOSTS": "4", "JOB_SLICE": "1", "JOB_SLICES": "2"}
    assert cluster.variables() == numbers | coordinator
    assert cluster.tpu_variables(TPU_ENV) == OF_TPU_ENV | coordinator | {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_ID": "1",
        "TPU_WORKER_HOSTNAMES": "10.0.0.2,10.0.0.3",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.0:8081",
        "MEGASCALE_PORT": "8081",
        "LIBTPU_INIT_ARGS": "--megascale_abort_on_hangs=true",
    }


def test_a_host_alone_needs_no_address_and_one_of_several_does():
    assert cluster_of({"slice": a_slice(hosts=1, addresses=[""])}) == ONE_HOST
    with pytest.raises(Failure, match="host 1 reported the address '', which is not an IP address"):
        cluster_of({"slice": a_slice(addresses=["10.0.0.1", ""])})


@pytest.mark.parametrize(
    ("exit_code", "error", "output", "lost"),
    [
        (134, "SIGABRT", f"{FATAL} absl::Status: UNAVAILABLE: Task 1 is lost\n    @ 0x7f74".encode(), "Task 1 is lost"),
        (134, "SIGABRT", b"RPC: /xla.coordination.CoordinationService/PollForError\n    @ 0x7f74", "coordinator"),
        (134, "SIGABRT", b"Check failed: x == y", None),
        (1, "UNKNOWN: Gloo all-reduce failed: Connection closed by peer", b"", "Connection closed by peer"),
        (1, "ValueError: PollForError", b"PollForError", None),
    ],
)
def test_a_process_ends_for_a_lost_host_by_the_texts_of_jax_alone(exit_code, error, output, lost):
    found = lost_peer(exit_code, error, output)
    assert found is None if lost is None else lost in found


@pytest.mark.slow
def test_jax_forms_a_cluster_of_one_host_from_the_settings_without_the_metadata_server():
    settings = Cluster(0, 1, ("localhost",), a_free_port()).tpu_variables(TPU_ENV)
    code = """
from jax._src.clusters import cloud_tpu_cluster, cluster
cloud_tpu_cluster.running_in_cloud_tpu_vm = True
import jax
jax.distributed.initialize()
print(jax.process_count(), jax.distributed.is_initialized())
"""
    closed = {"GCE_METADATA_IP": "127.0.0.1:1", "GCE_METADATA_HOST": "127.0.0.1:1", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **closed, **settings}, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, "1 True\n"), ran.stderr


def a_free_port():
    with socket.create_server((LOOPBACK, 0)) as server:
        return server.getsockname()[1]


class Slice:
    """Hosts on loopback, each with a home and two devices of its own, that run one job."""

    def __init__(self, storage, folder, hosts=2, slices=1):
        (folder / "hosts").mkdir()
        self.storage, self.port, self.hosts, self.slices = storage, a_free_port(), hosts, slices
        self.places = []
        for number in range(hosts * slices):
            (folder / str(number)).mkdir()
            self.places.append(Jobs(storage, folder / str(number) / "agent"))
        self.runners, self.endings = {}, {}

    def start(self, *numbers, **order):
        """Starts the job on the hosts with these numbers, or on all hosts."""
        flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        self.threads = []
        for number in numbers or range(len(self.places)):
            slice_number, host = divmod(number, self.hosts)
            addresses = [LOOPBACK] * len(self.places)
            where = a_slice(
                host, self.hosts, slice=slice_number, slices=self.slices, addresses=addresses, port=self.port
            )
            runner = self.places[number].runner(
                lambda order: PreparedCode(sys.executable, None, RAN, flags), **order, slice=where
            )
            self.runners[number] = runner
            self.threads.append(threading.Thread(target=self.run_host, args=(number, runner)))
        for thread in self.threads:
            thread.start()

    def run_host(self, number, runner):
        self.endings[number] = runner.run()

    def wait(self):
        for thread in self.threads:
            thread.join(HANG_S)
            assert not thread.is_alive()
        return {number: (ending["outcome"], ending["cause"]) for number, ending in self.endings.items()}

    def output(self, number):
        names = self.storage.names(BUCKET, f"{FOLDER}host_{number}/output/")
        return b"".join(self.storage.data(BUCKET, name) for name in names).decode()


SUM = """
import json, os
jax.distributed.initialize()
devices = jax.make_mesh((jax.device_count(),), ("devices",))
split = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("devices"))
numbers = jax.make_array_from_callback((jax.device_count(),), split, lambda index: jnp.arange(1, 99)[index])
total = int(jax.jit(jnp.sum)(numbers))
print("host", os.environ["JOB_HOST"], "of", os.environ["JOB_HOSTS"], flush=True)
open(os.path.join(os.environ["JOB_ARTIFACTS"], "total"), "w").write(str(total))
result = json.dumps([jax.process_index(), jax.process_count(), jax.local_device_count(), total])
if jax.process_index() == 1:
    result = type('NoText', (), {'__str__': None})()
"""
"""A sum over all devices, which are numbered from 1."""


def is_summed(found, hosts):
    outcomes = found.wait()
    assert outcomes == dict.fromkeys(range(hosts), ("completed", None)), [found.output(n) for n in range(hosts)]
    total = sum(range(1, 2 * hosts + 1))
    results = [found.endings[number]["result"] for number in range(hosts)]
    assert results == [json.dumps([0, hosts, 2, total]), *[None] * (hosts - 1)]
    for number in range(hosts):
        assert f"host {number} of {hosts}\n" in found.output(number)
        assert found.storage.data(BUCKET, f"{FOLDER}host_{number}/artifacts/total") == str(total).encode()


@needs_root
@pytest.mark.slow
def test_two_hosts_sum_over_their_devices_and_host_0_gives_the_result(storage, tmp_path):
    found = Slice(storage, tmp_path)
    found.start(code=SUM)
    is_summed(found, 2)


@needs_root
@pytest.mark.slow
def test_a_host_that_restarted_joins_no_attempt_again(storage, tmp_path):
    found = Slice(storage, tmp_path)
    (found.places[1].home / "jobs" / "j1-e2").mkdir(parents=True)  # its agent was killed
    found.start(1, command="echo begun")
    assert found.wait() == {1: ("failed", "machine")}
    assert found.endings[1]["error"] == "The host restarted in the middle of the attempt"


@needs_root
@pytest.mark.slow
def test_host_0_ends_the_attempt_for_a_new_source(storage, tmp_path):
    found = Slice(storage, tmp_path)
    found.start(command="echo begun; sleep 1000")
    until(lambda: found.output(0) and found.output(1))
    prepared = found.places[0].prepare()
    found.runners[1].restart(prepared)
    found.runners[0].restart(prepared)
    until(lambda: 0 in found.endings)
    found.runners[1].request("flush")
    assert found.wait() == {0: ("drained", None), 1: ("preempted", None)}


@needs_root
@pytest.mark.long
@pytest.mark.parametrize(("hosts", "slices"), [(4, 1), (2, 2)], ids=["one slice", "two slices"])
def test_four_hosts_form_one_cluster(storage, tmp_path, hosts, slices):
    found = Slice(storage, tmp_path, hosts, slices)
    found.start(code=SUM)
    is_summed(found, 4)


WAIT = f"""{SUM}
import time
while True:
    time.sleep(0.5)
    int(jax.jit(jnp.sum)(numbers))
"""


@needs_root
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_ends_the_attempt_of_the_other_host_and_spares_the_agents(storage, tmp_path, number, lost):
    found = Slice(storage, tmp_path)
    found.start(code=WAIT)
    until(lambda: all("host" in found.output(host) for host in (0, 1)))
    pids = processes_of(found.places[lost].home)
    for pid in pids:
        os.kill(pid, number)
    until(lambda: 1 - lost in found.endings)
    assert (found.endings[1 - lost]["outcome"], found.endings[1 - lost]["cause"]) == ("failed", "peer")
    for pid in pids:
        if os.path.exists(f"/proc/{pid}"):
            os.kill(pid, signal.SIGCONT)
    outcomes = found.wait()
    assert outcomes[lost] in [("failed", "exit"), ("failed", "peer")]


@needs_root
@pytest.mark.long
def test_a_host_that_fails_does_not_wait_for_the_others(storage, tmp_path):
    found = Slice(storage, tmp_path)
    found.start(code=f"{SUM}\nif jax.process_index() == 1:\n    raise ValueError('no data')\n{WAIT}")
    assert found.wait() == {0: ("failed", "peer"), 1: ("failed", "exit")}
    assert found.endings[1]["error"] == "ValueError: no data"


@needs_root
@pytest.mark.long
@pytest.mark.parametrize("present", [0, 1])
def test_a_host_without_its_peer_ends_the_attempt(storage, tmp_path, present):
    found = Slice(storage, tmp_path)
    found.start(present, code=SUM)
    assert found.wait() == {present: ("failed", "peer")}
    assert re.search("JAX lost another host|start JAX together", found.endings[present]["error"])


@needs_root
@needs_iptables
@pytest.mark.slow
def test_a_job_without_a_way_out_reaches_the_hosts_of_its_cluster_alone():
    command = [
        "unshare",
        "--net",
        sys.executable,
        os.path.join(os.path.dirname(__file__), "..", "support", "egress_process.py"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "job": ["127.0.0.1", "10.9.0.1", "10.9.0.2"],
        "another user": ["127.0.0.1", "10.9.0.1", "10.9.0.2", "10.9.0.3"],
        "rules are left": False,
        "local cloud": "Failed to isolate jobs: hosts of the local cloud share one network; "
        "set job_egress nat for several hosts",
    }
