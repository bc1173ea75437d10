"""The network of jobs on several hosts, where jobs have no way out: the hosts of the job reach each other alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .cluster import Cluster
from .user import JobUser, NotIsolated, call, has_ipv6

_LOOPBACK = {"iptables": "127.0.0.0/8", "ip6tables": "::1/128"}


@contextmanager
def reaching(user: JobUser, cluster: Cluster) -> Iterator[JobUser]:
    """A user without a network gets that of the VM, where rules reject every packet but those to the cluster.

    A network namespace cannot serve here, because its processes have no address that other hosts reach. A user with a
    network and a job on one host stay as they are. Raises NotIsolated without such rules.
    """
    if user.has_network or cluster.processes == 1:
        yield user
        return
    if not user.is_isolated or os.environ.get("GCE_METADATA_HOST"):
        raise NotIsolated(
            "Failed to isolate jobs: hosts of the local cloud share one network; set job_egress nat for several hosts"
        )
    try:
        _allow(user.uid, cluster.addresses)
        yield replace(user, has_network=True)
    finally:
        _forget(user.uid)


def _allow(uid: int, addresses: tuple[str, ...]) -> None:
    """Packets of the user pass a chain of its own. `RETURN` leaves them to the rules that close the metadata server."""
    for program in _programs():
        family = [address for address in addresses if (":" in address) == (program == "ip6tables")]
        rules = [["-N", _chain(uid)]]
        rules += [["-A", _chain(uid), "-d", to, "-j", "RETURN"] for to in [_LOOPBACK[program], *family]]
        rules += [["-A", _chain(uid), "-j", "REJECT"], ["-I", "OUTPUT", *_owner(uid)]]
        for rule in rules:
            if problem := call(program, "-w", "10", *rule):
                raise NotIsolated(f"Failed to close the network for a job: {problem}; install {program} on the VM")


def _forget(uid: int) -> None:
    """Deletes what `_allow` made. No later process has this user, so a rule that stays does no harm."""
    for program in _programs():
        for rule in (["-D", "OUTPUT", *_owner(uid)], ["-F", _chain(uid)], ["-X", _chain(uid)]):
            call(program, "-w", "10", *rule)


def _owner(uid: int) -> list[str]:
    return ["-m", "owner", "--uid-owner", str(uid), "-j", _chain(uid)]


def _chain(uid: int) -> str:
    return f"gleaner-{uid}"


def _programs() -> list[str]:
    return ["iptables", "ip6tables"] if has_ipv6() else ["iptables"]
