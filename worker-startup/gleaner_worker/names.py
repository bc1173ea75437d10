"""The names of all objects that the worker builds or parses."""

import re

_STREAM = re.compile(r"datasets/(?:([a-z][a-z0-9-]{0,38})/)?stream_(\d{3,9})\.jsonl(?:\.gz)?")
_SHARD = re.compile(r"shard_(\d{4,9})\.(safetensors|safetensors\.zst|pkl\.gz)")


def run_folder(run: str) -> str:
    """The run's segment of an object name: the run `default` has none."""
    return "" if run == "default" else f"{run}/"


def manifest_name(run: str) -> str:
    """The object with the frozen spec of the run, and at the end its result."""
    return f"activations/{run_folder(run)}manifest.json"


def model_name(run: str) -> str:
    """The object that lists the files of the run's model, written by the first worker that loads it."""
    return f"activations/{run_folder(run)}model.json"


def output_prefix(run: str, stream: str) -> str:
    """The folder of a stream's shards, such as `activations/my-run/tpu_7/` for the stream "007"."""
    return f"activations/{run_folder(run)}tpu_{int(stream)}/"


def shard_name(prefix: str, number: int, file_format: str) -> str:
    """The object of shard `number`. prefix: of output_prefix. file_format: that of the spec."""
    return f"{prefix}shard_{number:04d}.{file_format}"


def generated_name(prefix: str, number: int) -> str:
    """The object with the generated tokens of group `number` of a stream's prompts. prefix: of output_prefix."""
    return f"{prefix}generated_{number:04d}.jsonl"


def parse_shard(prefix: str, name: str) -> tuple[int, str] | None:
    """(number, format) of a shard object under `prefix`, or None for any other object."""
    match = _SHARD.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    if not match or shard_name(prefix, int(match[1]), match[2]) != name:
        return None
    return int(match[1]), match[2]


def partials_folder(run: str, stream: str) -> str:
    """The begin of the names of all partials of a stream."""
    return f"partials/{run_folder(run)}tpu_{int(stream)}/"


def partial_prefix(run: str, stream: str, number: int) -> str:
    """The begin of the names of all partials of shard `number`."""
    return f"{partials_folder(run, stream)}shard_{number:04d}."


def partial_name(run: str, stream: str, number: int, epoch: int, first: int, last: int) -> str:
    """The object of a partial. epoch: of its lease. first, last: positions of its samples in the shard."""
    return f"{partial_prefix(run, stream, number)}e{epoch}.s{first}-{last}.safetensors"


def parse_stream(name: str) -> tuple[str, str] | None:
    """(run, stream id) of a stream object such as `datasets/my-run/stream_007.jsonl.gz`, or None."""
    match = _STREAM.fullmatch(name)
    if not match or match[1] == "default":
        return None
    index = int(match[2])
    return (match[1] or "default", f"{index:03d}") if f"{index:03d}" == match[2] else None


def log_name(worker: str, incarnation: int, host: int) -> str:
    """The object of the agent's log. incarnation: counts the lives of the worker's TPU. host: its number in a slice."""
    return f"logs/{worker}/{incarnation}{f'.{host}' if host else ''}.log"
