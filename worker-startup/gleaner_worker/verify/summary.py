"""Compares metadata.json of a stream with the stored shards."""

import json

from gleaner_reader.format.safetensors_header import LAYOUT

from ..shards.shard_identity import OTHER_SUMMARY
from ..storage.objects import Bucket, ObjectInfo
from .shard_content import Expectation
from .small_objects import read_object


def check_summary(
    expect: Expectation,
    bucket: Bucket,
    info: ObjectInfo | None,
    prefix: str,
    counts: dict[str, int],
    shards: list[ObjectInfo],
    facts: dict[str, dict],
    problems: list[str],
) -> None:
    """Adds a problem for each difference between metadata.json and the stored shards.

    counts: of the stream, with the samples, tokens and rows in the metadata of its shards, so that a damaged shard
    counts too. facts: object name -> what an entry repeats of the header, of each readable shard.
    """
    if not info:
        problems.append(f"{prefix}metadata.json is missing")
        return
    text = read_object(bucket, info, problems)
    if text is None:
        return
    stored = {
        "total_samples": counts["samples"],
        "total_rejected": counts["rejected"],
        "total_truncated": counts["truncated"],
        "total_tokens": counts["tokens"],
        "total_rows": counts["rows"],
        "total_shards": len(shards),
        "spec_hash": expect.spec_hash,
    }
    if expect.fingerprint:
        stored["model_fingerprint"] = expect.fingerprint
    try:
        summary = json.loads(text)
        listed_totals = {key: summary[key] for key in stored}
        entries = [
            (entry["gcs_path"], entry["size_bytes"], entry["crc32c"], entry["sha256"]) for entry in summary["shards"]
        ]
        listed_facts = {
            entry["gcs_path"]: {"stats": entry["stats"]} | {key: entry[key] for key in LAYOUT if key in entry}
            for entry in summary["shards"]
        }
        non_finite = [name for name, values in summary["stats"].items() if values["non_finite"] != 0]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems.append(f"{info.name} is not a summary of Gleaner: {error!r}")
        return
    wrong = [f"{key} {listed_totals[key]}, not {value}" for key, value in stored.items() if listed_totals[key] != value]
    if wrong:
        problems.append(f"{info.name} says {'; '.join(wrong)}")
    listed = [
        (f"gs://{bucket.name}/{shard.name}", shard.size_bytes, shard.crc32c, shard.metadata.get("sha256"))
        for shard in shards
    ]
    if shards[-1].metadata.items() >= OTHER_SUMMARY.items():
        entries, listed = _without_last_bytes(entries), _without_last_bytes(listed)
        facts = {name: values for name, values in facts.items() if name != shards[-1].name}
    if entries != listed:
        problems.append(f"{info.name} lists other shards, sizes or checksums than are stored")
    own = {f"gs://{bucket.name}/{name}": values for name, values in facts.items()}
    if other := [name for name, values in own.items() if not listed_facts.get(name, {}).items() <= values.items()]:
        problems.append(f"{info.name} lists other statistics or tensors of {other[0]} than its header")
    if non_finite or list(summary["stats"]) != expect.names:
        problems.append(f"{info.name} does not list finite statistics of exactly {', '.join(expect.names)}")


def _without_last_bytes(entries: list[tuple]) -> list[tuple]:
    return entries[:-1] + [entry[:1] for entry in entries[-1:]]
