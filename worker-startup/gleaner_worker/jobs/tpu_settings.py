"""Variables that replace libtpu's requests to the metadata server, which is blocked for jobs."""

import re

# {name in the attribute tpu-env: name of the variable}
_NAMES = {
    "ACCELERATOR_TYPE": "TPU_ACCELERATOR_TYPE",
    "CHIPS_PER_HOST_BOUNDS": "TPU_CHIPS_PER_HOST_BOUNDS",
    "HOST_BOUNDS": "TPU_HOST_BOUNDS",
    "TOPOLOGY": "TPU_TOPOLOGY",
}
_LINE = re.compile(r"([A-Z0-9_]+): '([^'\0]*)'")


def tpu_settings(tpu_env: str) -> dict[str, str]:
    """The variables for a slice of one host, from the metadata attribute `tpu-env`: lines such as `TOPOLOGY: '2x4'`."""
    values = {match[1]: match[2] for line in tpu_env.splitlines() if (match := _LINE.fullmatch(line.strip()))}
    found = {variable: values[name] for name, variable in _NAMES.items() if values.get(name)}
    if not found:
        return {}
    return {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost", **found}
