"""The accelerators that the TPU compiler can compile for, without a TPU.

Sources: the public pages of Cloud TPU, and for the memory of TPU7x the compiler. The clock follows from the peak, at 2
operations per multiplier and cycle, and from the MXUs of a device:

    v5e      4 of 128 x 128
    v5p      8 of 128 x 128
    v6e      4 of 256 x 256
    tpu7x    4 of 256 x 256

A device of JAX is a chip. A chip of TPU7x is two devices.
"""

import os
from dataclasses import dataclass
from typing import Any

# For a process that compiles for TPUs: JAX searches for no TPU, and several such processes may run.
COMPILER_ENV = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclass(frozen=True)
class Device:
    """The limits of one device."""

    clock_hz: float
    peak_flops: float  # bf16 operations per second
    hbm_bytes_per_s: float
    hbm_bytes: int  # available to programs


DEVICES = {
    "v5e": Device(1.5e9, 197e12, 819e9, int(15.75 * 2**30)),
    "v5p": Device(1.75e9, 459e12, 2765e9, int(94.75 * 2**30)),
    "v6e": Device(1.75e9, 918e12, 1640e9, int(31.25 * 2**30)),
    "tpu7x": Device(2.2e9, 1153.5e12, 3690e9, int(94.74 * 2**30)),
}
# For each accelerator type: its generation, the smallest topology with enough devices, and the number of devices.
ACCELERATORS = {
    "v5litepod-1": ("v5e", "v5e:2x2", 1),
    "v5litepod-4": ("v5e", "v5e:2x2", 4),
    "v5litepod-8": ("v5e", "v5e:2x4", 8),
    "v5litepod-16": ("v5e", "v5e:4x4", 16),
    "v6e-1": ("v6e", "v6e:2x2", 1),
    "v6e-4": ("v6e", "v6e:2x2", 4),
    "v6e-8": ("v6e", "v6e:2x4", 8),
    "v6e-16": ("v6e", "v6e:4x4", 16),
    "v5p-8": ("v5p", "v5p:2x2x1", 4),
    "v5p-16": ("v5p", "v5p:2x2x2", 8),
    "tpu7x-8": ("tpu7x", "tpu7x:2x2x1", 8),
    "tpu7x-16": ("tpu7x", "tpu7x:2x2x2", 16),
}


def devices_of(accelerator: str) -> list[Any]:
    """Descriptions of the devices, which the compiler accepts in place of devices. Raises KeyError for a type that is
    not in ACCELERATORS. Call it before JAX opens a backend."""
    _, topology, count = ACCELERATORS[accelerator]
    os.environ |= COMPILER_ENV
    from jax.experimental import topologies

    return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[:count])


def device_of(accelerator: str) -> Device:
    """A device of an accelerator type. Raises KeyError for a type that is not in ACCELERATORS."""
    return DEVICES[ACCELERATORS[accelerator][0]]
