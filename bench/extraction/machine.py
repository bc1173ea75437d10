"""The machine of a measurement, for every report."""

import importlib.metadata
import os
import platform

_PACKAGES = ("jax", "jaxlib", "numpy", "torch", "transformers", "sae-lens", "transformer-lens", "nnsight")
_OF_INTEREST = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def facts() -> dict[str, str]:
    flags, model = _cpu()
    versions = [f"{name} {version}" for name in _PACKAGES if (version := _version(name))]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": f"{model}, {len(os.sched_getaffinity(0))} cores, {', '.join(f for f in _OF_INTEREST if f in flags)}",
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(versions),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _cpu() -> tuple[set[str], str]:
    flags: set[str] = set()
    model = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "flags":
                    flags = set(value.split())
                elif key.strip() == "model name":
                    model = value.strip()
    except OSError:
        pass  # not Linux: the architecture is enough
    return flags, model


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
