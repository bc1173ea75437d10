"""A VM in a network namespace: its only network is loopback, with a metadata server, worker-api and a bucket.

`unshare --net --mount python vm_process.py HOME [--model FOLDER] [--archive FILE]` boots the VM with startup.sh, and
prints its acts as JSON. With a model the agent works on one stream. FILE: a built environment, in place of a stand-in.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import environment  # noqa: F401  (first: sets the paths)
from build import BUCKET, a_stream, a_work_answer, text_lines
from environment import WORKER
from fake_cloud import FakeCloud
from fake_storage import FakeStorage
from local_server import LocalServer
from startup_script import SCRIPT, an_environment, store_bundle

METADATA = "169.254.169.254"


def isolate(folder):
    """Loopback is the network, the metadata server has its name and its address, and no systemd is there."""
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{METADATA} metadata.google.internal\n")
    commands = f"""
        ip link set lo up
        ip address add {METADATA}/32 dev lo
        mount --make-rprivate /
        mount --bind {hosts} /etc/hosts
        [[ ! -d /run/systemd ]] || mount -t tmpfs tmpfs /run/systemd
    """
    subprocess.run(["bash", "-euc", commands], check=True)


def pack_worker(tar):
    for package in ("gleaner_worker", "gleaner_reader"):
        files = Path(WORKER, package).rglob("*")
        for path in sorted(path for path in files if path.suffix in (".py", ".json", ".jsonl")):
            tar.add(path, str(path.relative_to(WORKER)))


def reaches(uid, port):
    """Whether a user connects to a port of the metadata server's address."""
    # A connection loads the codec, which only root may read.
    code = (
        f"import os, socket; ''.encode('idna'); os.setuid({uid}); socket.create_connection(('{METADATA}', {port}), 60)"
    )
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def folder_of(request):
    return request.split("/o/")[1].split("/")[0]


def built_environment(storage, path):
    """Stores a built archive, and returns the line that names it."""
    data = Path(path).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    storage.put(BUCKET, f"environments/{digest}.tar.gz", data)
    return f"{'a' * 16} {digest} {len(data)}\n"


def main(home, model, archive):
    home.mkdir()
    isolate(home.parent)
    storage, cloud = FakeStorage(), FakeCloud(bucket=BUCKET)
    names = LocalServer(cloud.handler(), (METADATA, 53))  # stands in for the DNS server of a VM
    metadata = LocalServer(cloud.handler(), (METADATA, 80))
    line = built_environment(storage, archive) if archive else an_environment(storage, padding=1_000_000)
    store_bundle(storage, cloud, line, pack_worker)
    if model:
        cloud.leases = [a_work_answer(a_stream(storage, text_lines(20)), model=model)]
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("GCE_", "GLEANER_", "PYTHON"))}
    variables |= {"GLEANER_HOME": str(home), "GLEANER_PLATFORM": "cpu", "STORAGE_EMULATOR_HOST": storage.url}
    if not archive:  # the packages are those of this process, and so is their bytecode
        variables["PYTHONPYCACHEPREFIX"] = os.environ["PYTHONPYCACHEPREFIX"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    boot = subprocess.run(["bash", SCRIPT], env=variables, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "status": boot.returncode,
        "console": boot.stderr,
        "actions": [body["action"] for body in cloud.asked],
        "steps": [body["step"] for body in cloud.asked if body.get("step")],
        "shards": storage.names(BUCKET, "activations/my-run/tpu_7/shard"),
        "log": storage.data(BUCKET, "logs/tpu-us-central1-a-0/3.log").decode(),
        "fetched": [folder_of(request) for request in storage.requests if "alt=media" in request],
        "reached": {f"{uid}:{port}": reaches(uid, port) for uid in (0, 1, 65_534) for port in (80, 53)},
        "requests": {
            "metadata": len(cloud.read),
            "worker_api": len(cloud.hellos) + len(cloud.asked),
            "bucket": len(storage.requests),
        },
        "fetched_bytes": storage.sent_bytes,
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }
    print(json.dumps(found))
    for server in (names, metadata, storage, cloud):
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--archive")
    main(**vars(parser.parse_args()))
