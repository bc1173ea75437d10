"""The custom metadata of a shard object, compared with the run and with its place in the stream."""

from gleaner_reader.header import is_number

from ..objects import ObjectInfo
from .expectation import Expectation

NUMBERS = ("shard", "first_sample", "last_sample", "samples", "rejected", "tokens", "rows")


def check_metadata(expect: Expectation, stream: str, number: int, shard: ObjectInfo, samples: int) -> list[str]:
    """Describes everything that the shard's custom metadata state wrongly."""
    known = {
        "schema": "gleaner/1",
        "run": expect.run,
        "stream": stream,
        "spec_hash": expect.spec_hash,
        "format": expect.wanted.spec.format,
    }
    if expect.fingerprint:
        known["model_fingerprint"] = expect.fingerprint
    found = shard.metadata
    if not found.get("schema"):
        return ["is no shard of ours: it has no metadata that says so"]
    wrong = [f"says {key} {found.get(key)}, not {value}" for key, value in known.items() if found.get(key) != value]
    unread = [key for key in NUMBERS if not is_number(found.get(key, ""), 18)]
    wrong += [f"says {key} {found.get(key)}, not a number" for key in unread]
    if found.get("final") not in ("true", "false"):
        wrong.append(f"says final {found.get('final')}")
    if unread:
        return wrong
    if int(found["shard"]) != number:
        wrong.append(f"says that it is shard {found['shard']}")
    first, last = int(found["first_sample"]), int(found["last_sample"])
    if not first <= last < samples or int(found["samples"]) + int(found["rejected"]) != last - first + 1:
        wrong.append(
            f"says samples {first} to {last}, {found['samples']} stored and {found['rejected']} rejected, "
            f"of {samples} samples"
        )
    return wrong


def facts_of(shard: ObjectInfo, samples: int) -> dict[str, int] | None:
    """The numbers of a shard whose samples are among the stream's; None for any other shard."""
    if not all(is_number(shard.metadata.get(key, ""), 18) for key in NUMBERS):
        return None
    facts = {key: int(shard.metadata[key]) for key in NUMBERS}
    return facts if facts["first_sample"] <= facts["last_sample"] < samples else None


def is_foreign(shard: ObjectInfo, stream: ObjectInfo) -> bool:
    """Whether the shard was made from content of the stream that is no longer there."""
    return shard.metadata.get("stream_crc32c") != stream.crc32c
