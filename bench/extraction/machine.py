"""The machine of a measurement, for every report."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path

_PACKAGES = ("jax", "jaxlib", "numpy", "torch", "transformers", "sae-lens", "transformer-lens", "nnsight")
_OF_INTEREST = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def facts() -> dict[str, str]:
    cpu = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)", cpu, re.MULTILINE)
    name = model[1] if model else platform.machine()
    instructions = ", ".join(name for name in _OF_INTEREST if re.search(rf"\b{name}\b", cpu))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": f"{name}, {len(os.sched_getaffinity(0))} cores, {instructions}",
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{package} {importlib.metadata.version(package)}" for package in _PACKAGES),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }
