"""A VM in a network namespace: `unshare --net python egress_process.py` prints the addresses that a job reaches."""

import json
import os
import socket
import subprocess
import sys

import environment  # noqa: F401  (first: sets the paths)
from gleaner_worker.jobs.cluster import Cluster
from gleaner_worker.jobs.egress import reaching
from gleaner_worker.jobs.user import FIRST_UID, JobUser, NotIsolated, block_metadata

METADATA = "169.254.169.254"
ADDRESSES = ["127.0.0.1", "10.9.0.1", "10.9.0.2", "10.9.0.3", METADATA]
# The address of the metadata server stays closed, also where a host reports it as its own.
CLUSTER = Cluster(0, 3, ("10.9.0.1", "10.9.0.2", METADATA), 8482)

REACH = """
import os, socket, sys
''.encode('idna')  # a connection loads the codec, which only root may read
os.setuid(int(sys.argv[1]))
for address in sys.argv[3:]:
    try:
        socket.create_connection((address, int(sys.argv[2])), 60).close()
        print(address)
    except OSError:
        pass
"""


def reached(uid, port):
    command = [sys.executable, "-c", REACH, str(uid), str(port), *ADDRESSES]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def rules():
    return [subprocess.run([program, "-S"], capture_output=True).stdout for program in ("iptables", "ip6tables")]


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES[1:]:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    os.environ.pop("GCE_METADATA_HOST", None)
    block_metadata()
    before, user = rules(), JobUser(FIRST_UID, FIRST_UID, has_network=False)
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with reaching(user, CLUSTER) as allowed:
            found = {"job": reached(allowed.uid, port), "another user": reached(FIRST_UID + 1, port)}
    found["rules are left"] = rules() != before
    os.environ["GCE_METADATA_HOST"] = "127.0.0.1:1"
    try:
        with reaching(user, CLUSTER):
            pass
    except NotIsolated as error:
        found["local cloud"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
