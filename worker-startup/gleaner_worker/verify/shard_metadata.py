"""Compares the custom metadata of a shard object with the run and with the shard's place in the stream."""

from gleaner_reader.format.limits import is_number

from ..storage.objects import ObjectInfo
from .shard_content import Expectation

NUMBERS = ("shard", "first_sample", "last_sample", "samples", "rejected", "tokens", "rows")


def check_metadata(expect: Expectation, stream: str, number: int, shard: ObjectInfo, samples: int) -> list[str]:
    """A phrase for each wrong value in the shard's custom metadata. samples: the number of samples in the stream."""
    expected = {
        "schema": "gleaner/1",
        "run": expect.run,
        "stream": stream,
        "spec_hash": expect.spec_hash,
        "format": expect.spec.format,
    }
    if expect.fingerprint:
        expected["model_fingerprint"] = expect.fingerprint
    metadata = shard.metadata
    if not metadata.get("schema"):
        return ["is not a shard of Gleaner: its metadata have no schema"]
    wrong = [
        f"says {key} {metadata.get(key)}, not {value}" for key, value in expected.items() if metadata.get(key) != value
    ]
    non_numbers = [key for key in NUMBERS if not is_number(metadata.get(key, ""), 18)]
    wrong += [f"says {key} {metadata.get(key)}, not a number" for key in non_numbers]
    if metadata.get("final") not in ("true", "false"):
        wrong.append(f"says final {metadata.get('final')}")
    if non_numbers:
        return wrong
    if int(metadata["shard"]) != number:
        wrong.append(f"says that it is shard {metadata['shard']}")
    first, last = int(metadata["first_sample"]), int(metadata["last_sample"])
    if not first <= last < samples or int(metadata["samples"]) + int(metadata["rejected"]) != last - first + 1:
        wrong.append(
            f"says samples {first} to {last}, {metadata['samples']} stored and {metadata['rejected']} rejected, "
            f"of {samples} samples"
        )
    return wrong


def shard_numbers(shard: ObjectInfo, samples: int) -> dict[str, int] | None:
    """The numbers in the metadata of a shard whose samples are among the stream's `samples`; None for another shard."""
    if not all(is_number(shard.metadata.get(key, ""), 18) for key in NUMBERS):
        return None
    numbers = {key: int(shard.metadata[key]) for key in NUMBERS}
    return numbers if numbers["first_sample"] <= numbers["last_sample"] < samples else None


def is_foreign(shard: ObjectInfo, stream: ObjectInfo) -> bool:
    """Whether the shard was made from other content of the stream than it has now."""
    return shard.metadata.get("stream_crc32c") != stream.crc32c
