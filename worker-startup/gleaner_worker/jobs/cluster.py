"""The cluster of an attempt: the hosts of one slice, or of several slices, that run the job together."""

import ipaddress
import re
from dataclasses import dataclass

from ..failures import Failure

_MULTISLICE_PORT = 8081
# Variables that replace libtpu's requests to the metadata server, which is blocked for jobs: by name in `tpu-env`.
# Other lines of `tpu-env` stay out: its MEGASCALE_* may be those of an earlier cluster.
_TPU_VARIABLES = {
    "ACCELERATOR_TYPE": "TPU_ACCELERATOR_TYPE",
    "CHIPS_PER_HOST_BOUNDS": "TPU_CHIPS_PER_HOST_BOUNDS",
    "HOST_BOUNDS": "TPU_HOST_BOUNDS",
    "TOPOLOGY": "TPU_TOPOLOGY",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_PROCESS_BOUNDS": "TPU_PROCESS_BOUNDS",
    "TPU_TOPOLOGY_ALT": "TPU_TOPOLOGY_ALT",
    "TPU_TOPOLOGY_WRAP": "TPU_TOPOLOGY_WRAP",
}
# Chips of the accelerators of Compute Engine in each dimension of their host.
_CHIPS = {"v6e-1": "1,1,1", "v6e-4": "2,2,1", "v6e-8": "2,4,1", "v5p-8": "2,2,1", "tpu7x-8": "2,2,1"}
_LINE = re.compile(r"([A-Z0-9_]+): '([^'\0]*)'")
# JAX ends a process that has lost another host: by SIGABRT with a text of its coordinator, or by the error of a
# collective operation.
_ABORTED = 134
_FATAL_TEXTS = (b"JAX distributed service detected fatal errors", b"PollForError")
_STATUS = re.compile(rb"absl::Status: ([^\n]{1,1000})")
_GLOO_FAILURE = re.compile(r"Gloo [A-Za-z -]+ failed")


@dataclass(frozen=True)
class Cluster:
    """One process on each host. addresses: of the hosts of all slices, slice by slice."""

    host: int  # its number in its slice
    hosts: int  # of each slice
    addresses: tuple[str, ...]
    port: int  # of JAX's coordinator, on the first host
    slice: int = 0
    slices: int = 1

    @property
    def process(self) -> int:
        """The number of this host in the cluster."""
        return self.slice * self.hosts + self.host

    @property
    def processes(self) -> int:
        return self.slices * self.hosts

    def variables(self) -> dict[str, str]:
        """The variables of a process on any machine."""
        numbers = {
            "JOB_HOST": str(self.process),
            "JOB_HOSTS": str(self.processes),
            "JOB_SLICE": str(self.slice),
            "JOB_SLICES": str(self.slices),
        }
        return numbers if self.processes == 1 else numbers | self._coordinator()

    def tpu_variables(self, tpu_env: str) -> dict[str, str]:
        """The variables of libtpu and JAX on a TPU, which then ask no metadata server.

        tpu_env: the metadata attribute `tpu-env`, lines such as `TOPOLOGY: '2x4'`. A machine without a TPU has none.
        """
        values = {match[1]: match[2] for line in tpu_env.splitlines() if (match := _LINE.fullmatch(line.strip()))}
        variables = {variable: values[name] for name, variable in _TPU_VARIABLES.items() if values.get(name)}
        if not variables:
            return {}
        first = self.slice * self.hosts
        return {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_WORKER_ID": str(self.host),
            "TPU_WORKER_HOSTNAMES": ",".join(self.addresses[first : first + self.hosts]),
            "MEGASCALE_NUM_SLICES": str(self.slices),
            "MEGASCALE_SLICE_ID": str(self.slice),
            **self._coordinator(),
            **(self._multislice() if self.slices > 1 else {}),
            **variables,
        }

    def _coordinator(self) -> dict[str, str]:
        """JAX reads both. The coordinator accepts connections to this address alone."""
        address = _with_port(self.addresses[0], self.port)
        return {"JAX_COORDINATOR_ADDRESS": address, "JAX_COORDINATOR_BIND_ADDRESS": address}

    def _multislice(self) -> dict[str, str]:
        return {
            "MEGASCALE_COORDINATOR_ADDRESS": _with_port(self.addresses[0], _MULTISLICE_PORT),
            "MEGASCALE_PORT": str(_MULTISLICE_PORT),
            "LIBTPU_INIT_ARGS": "--megascale_abort_on_hangs=true",
        }


# JAX takes port 8482 on TPUs.
ONE_HOST = Cluster(0, 1, ("localhost",), 8482)


def tpu_env_of_instance(accelerator: str) -> str:
    """The lines of `tpu-env` for an instance of Compute Engine, which has one host and no such attribute."""
    lines = {"ACCELERATOR_TYPE": accelerator, "HOST_BOUNDS": "1,1,1", "CHIPS_PER_HOST_BOUNDS": _CHIPS.get(accelerator)}
    return "\n".join(f"{name}: '{value}'" for name, value in lines.items() if value)


def cluster_of(order: dict) -> Cluster:
    """The cluster of a job, as worker-api sends it. Raises Failure for a host without an address.

    order["slice"]: host, hosts, addresses, port, slice and slices. The addresses are those of the hosts of all slices,
    slice by slice.
    """
    found = order["slice"]
    cluster = Cluster(
        int(found["host"]),
        int(found["hosts"]),
        tuple(found["addresses"]),
        int(found["port"]),
        int(found["slice"]),
        int(found["slices"]),
    )
    if cluster.processes == 1:
        return ONE_HOST
    for process, address in enumerate(cluster.addresses):
        if not _is_address(address):
            reason = f"host {process} reported the address {address!r:.100}, which is not an IP address"
            raise Failure("infrastructure", f"Failed to form a cluster: {reason}")
    return cluster


def lost_peer(exit_code: int | None, error: str, output: bytes) -> str | None:
    """How JAX says that a process ended because it lost another host of its cluster; None for any other end.

    output: the end of what the process printed.
    """
    if exit_code != _ABORTED:
        return error if _GLOO_FAILURE.search(error) else None
    if not any(text in output for text in _FATAL_TEXTS):
        return None
    status = _STATUS.search(output)
    return status[1].decode("utf-8", "replace").strip() if status else "its coordinator ended the process"


def _with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _is_address(text: object) -> bool:
    try:
        return bool(ipaddress.ip_address(text))  # type: ignore[arg-type]
    except ValueError:
        return False
