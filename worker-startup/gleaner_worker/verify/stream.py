"""One stream held against its shards: every sample stored once or rejected once, with its own token ids."""

import json
import os
import sys
from collections.abc import Callable

from ..failures import Failure, Unreachable
from ..names import output_prefix, parse_shard
from ..objects import Bucket, ObjectInfo
from ..shards.shard_identity import OTHER_SUMMARY
from .shard import (
    BAD,
    CUT,
    DIFFERENT,
    LISTED_AGAIN,
    LISTED_REJECT,
    STORED,
    STORED_AGAIN,
    Expectation,
    Samples,
    check_content,
    check_metadata,
    facts_of,
    is_foreign,
    mark_different,
    unread,
)

COUNTS = (
    "samples",
    "stored_once",
    "missing",
    "doubled",
    "different",
    "rejected",
    "truncated",
    "shards",
    "bytes",
    "tokens",
    "rows",
)
# Of the numbers in the shards' metadata, those that are added up.
_TOTALS = ("samples", "tokens", "rows")
_MAX_PROBLEMS = 50


def verify_stream(
    expect: Expectation,
    bucket: Bucket,
    stream: str,
    info: ObjectInfo,
    outputs: list[ObjectInfo],
    folder: str,
    tell: Callable[[dict], None],
) -> dict:
    """The stream's part of the report. `outputs`: every object in its folder under activations/."""
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem)
        if len(problems) <= _MAX_PROBLEMS:
            tell({"problem": problem})

    path = os.path.join(folder, "stream")
    bucket.download(info.name, path, info.generation)
    samples = Samples(path, info.name, expect.reader)
    marks = samples.marks
    prefix = output_prefix(expect.run, stream)
    named = {other.name.removeprefix(prefix): other for other in outputs}
    shards = _shards(prefix, outputs)
    before: tuple[int, ObjectInfo] | None = None
    end, is_final = -1, False
    totals: dict[str, int] = dict.fromkeys(_TOTALS, 0)
    stats: dict[str, dict] = {}
    foreign: list[ObjectInfo] = []
    for position, (number, shard) in enumerate(shards):
        tell({"shards_done": position, "shards": len(shards)})
        wrong = check_metadata(expect, stream, number, shard, len(marks))
        due = before[0] + 1 if before else 1
        if before and number == before[0]:
            wrong.append(f"is shard {number}, as {before[1].name} is")
        elif number != due and not is_final:
            report(_missing(prefix, due, number - 1))
        if facts := facts_of(shard, len(marks)):
            if number == due and facts["first_sample"] != end + 1:
                wrong.append(f"starts at sample {facts['first_sample']}, but the shards before it end at sample {end}")
            if is_final:
                wrong.append("comes after the final shard")
            end = max(end, facts["last_sample"])
            totals = {key: total + facts[key] for key, total in totals.items()}
            is_final = shard.metadata.get("final") == "true"
            if is_foreign(shard, info):
                foreign.append(shard)
                mark_different(marks, facts)
            else:
                found, told = check_content(expect, bucket, shard, samples, folder)
                wrong += found
                if told is not None:
                    stats[shard.name] = told
        for what in wrong:
            report(f"{shard.name} {what}")
        before = (number, shard)
    if foreign:
        problems.append(_describe_foreign(foreign, info))
    if len(marks) == 0:
        problems.append(f"{info.name} is empty: it holds no record; drop it again with its records")
    elif not is_final or end != len(marks) - 1:
        due = before[0] + 1 if before else 1
        left = "" if is_final else f"; {_missing(prefix, due, due)}, and perhaps more shards"
        problems.append(f"{info.name} is not finished: its shards cover {end + 1} of its {len(marks)} samples{left}")
    samples.read_rest()
    _read_rejects(expect, bucket, named.get("rejects.jsonl"), marks, problems)
    counts = _count(marks)
    _check_rejects(expect, marks, f"{prefix}rejects.jsonl", problems)
    if is_final:
        _check_summary(
            expect,
            bucket,
            named.get("metadata.json"),
            prefix,
            counts | totals,
            [shard for _, shard in shards],
            stats,
            problems,
        )
    for key in ("missing", "doubled", "different"):
        if counts[key]:
            problems.append(
                f"{info.name} has {counts[key]} samples {key}, the first {_where(expect, _first(marks, key))}"
            )
    if len(problems) > _MAX_PROBLEMS:
        problems = [*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more"]
    return {"stream": stream, "object": info.name, **counts, **_sizes(shards, totals), "problems": problems}


def unread_stream(run: str, stream: str, info: ObjectInfo, outputs: list[ObjectInfo], error: Exception) -> dict:
    """The part of the report of a stream that cannot be read, with the numbers that its shards' metadata say."""
    shards = _shards(output_prefix(run, stream), outputs)
    facts = [found for _, shard in shards if (found := facts_of(shard, sys.maxsize))]
    samples = max((found["last_sample"] + 1 for found in facts), default=0)
    problems = [f"{info.name} {unread(error)}"]
    if samples:
        problems.append(f"{info.name} has {samples} samples missing: without the stream they cannot be compared")
    counts = _count(bytearray()) | {"samples": samples, "missing": samples}
    totals = {key: sum(found[key] for found in facts) for key in _TOTALS}
    return {"stream": stream, "object": info.name, **counts, **_sizes(shards, totals), "problems": problems}


def _shards(prefix: str, outputs: list[ObjectInfo]) -> list[tuple[int, ObjectInfo]]:
    return sorted(
        ((parsed[0], other) for other in outputs if (parsed := parse_shard(prefix, other.name))),
        key=lambda found: (found[0], found[1].name),
    )


def _sizes(shards: list[tuple[int, ObjectInfo]], totals: dict[str, int]) -> dict[str, int]:
    size_bytes = sum(shard.size_bytes for _, shard in shards)
    return {"shards": len(shards), "bytes": size_bytes, "tokens": totals["tokens"], "rows": totals["rows"]}


def _missing(prefix: str, first: int, last: int) -> str:
    if first >= last:
        return f"{prefix}shard_{first:04d} is missing"
    return f"{prefix}shard_{first:04d} to shard_{last:04d} are missing"


def _describe_foreign(shards: list[ObjectInfo], info: ObjectInfo) -> str:
    """One line for however many shards have this one cause."""
    first = shards[0]
    others = f" and {len(shards) - 1} more shards: each" if len(shards) > 1 else ""
    before, generation = (first.metadata.get(key) for key in ("stream_crc32c", "stream_generation"))
    return (
        f"{first.name}{others} was made from other content of {info.name} (crc32c {before} of generation {generation}, "
        f"now {info.crc32c} of generation {info.generation})"
    )


def _where(expect: Expectation, sample: int) -> str:
    line = f"at line {expect.line_of(sample)}"
    return line if expect.reader.samples_per_line == 1 else f"{line} (sample {sample})"


def _read_rejects(
    expect: Expectation, bucket: Bucket, info: ObjectInfo | None, marks: bytearray, problems: list[str]
) -> None:
    """A record is of one sample, or of all those of its line."""
    if info is None:
        return
    for number, line in enumerate((_read_object(bucket, info, problems) or b"").splitlines(), 1):
        try:
            record = json.loads(line)
            index, count = record["sample_idx"], record.get("samples", 1)
            if type(index) is not int or type(count) is not int or not 0 <= index < index + count <= len(marks):
                raise ValueError("no such sample in the stream")
            if record["line"] != expect.line_of(index) or not record["reason"]:
                raise ValueError("no such line in the stream, or no reason")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"{info.name} line {number} is not a record of a rejected line: {error!r}")
            continue
        for sample in range(index, index + count):
            marks[sample] |= LISTED_AGAIN if marks[sample] & LISTED_REJECT else LISTED_REJECT


def _read_object(bucket: Bucket, info: ObjectInfo, problems: list[str]) -> bytes | None:
    """The bytes of a small object; None where they cannot be downloaded, and the problems say why."""
    try:
        return bucket.read(info.name) or b""
    except Unreachable:
        raise
    except Failure as error:
        problems.append(f"{info.name} {unread(error)}")
        return None


def _check_rejects(expect: Expectation, marks: bytearray, name: str, problems: list[str]) -> None:
    """Names the file where it is at fault; the counts alone would name only the stream."""
    lacking = [index for index, mark in enumerate(marks) if mark & BAD and not mark & (LISTED_REJECT | STORED)]
    made_up = [index for index, mark in enumerate(marks) if mark & LISTED_REJECT and not mark & BAD]
    for found, said in ((lacking, "lacks {} samples that cannot be stored"), (made_up, "lists {} that can be stored")):
        if found:
            problems.append(f"{name} {said.format(len(found))}, the first is {_where(expect, found[0])}")


def _kind(mark: int) -> str:
    if mark & (STORED_AGAIN | LISTED_AGAIN) or (mark & STORED and mark & LISTED_REJECT):
        return "doubled"
    if mark & STORED:
        return "different" if mark & (DIFFERENT | BAD) else "stored_once"
    return "rejected" if mark & LISTED_REJECT and mark & BAD else "missing"


def _count(marks: bytearray) -> dict[str, int]:
    counts = {
        "samples": len(marks),
        "stored_once": 0,
        "missing": 0,
        "doubled": 0,
        "different": 0,
        "rejected": 0,
        "truncated": 0,
    }
    for mark in set(marks):
        counts[_kind(mark)] += marks.count(mark)
        if mark & CUT:
            counts["truncated"] += marks.count(mark)
    return counts


def _first(marks: bytearray, kind: str) -> int:
    return next(index for index, mark in enumerate(marks) if _kind(mark) == kind)


def _check_summary(
    expect: Expectation,
    bucket: Bucket,
    info: ObjectInfo | None,
    prefix: str,
    counts: dict[str, int],
    shards: list[ObjectInfo],
    stats: dict[str, dict],
    problems: list[str],
) -> None:
    """counts: samples, tokens and rows are those in the shards' metadata, which also tell of a shard that is damaged.

    stats: what each shard that could be read says of its values.
    """
    if not info:
        problems.append(f"{prefix}metadata.json is missing")
        return
    text = _read_object(bucket, info, problems)
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
        said = {key: summary[key] for key in stored}
        entries = [(entry["gcs_path"], entry["size_bytes"], entry["crc32c"]) for entry in summary["shards"]]
        told = {entry["gcs_path"]: entry["stats"] for entry in summary["shards"]}
        non_finite = [name for name, values in summary["stats"].items() if values["non_finite"] != 0]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems.append(f"{info.name} is not a summary of ours: {error!r}")
        return
    wrong = [f"{key} {said[key]}" for key in stored if said[key] != stored[key]]
    if wrong:
        problems.append(f"{info.name} says {', '.join(wrong)}, which is not what is stored")
    listed = [(f"gs://{bucket.name}/{shard.name}", shard.size_bytes, shard.crc32c) for shard in shards]
    if shards[-1].metadata.items() >= OTHER_SUMMARY.items():
        entries, listed = _without_last_bytes(entries), _without_last_bytes(listed)
        stats = {name: values for name, values in stats.items() if name != shards[-1].name}
    if entries != listed:
        problems.append(f"{info.name} lists other shards, sizes or checksums than are stored")
    shards_told = {f"gs://{bucket.name}/{name}": values for name, values in stats.items()}
    if other := [name for name, values in shards_told.items() if told.get(name, values) != values]:
        problems.append(f"{info.name} tells other statistics of {other[0]} than it does itself")
    if non_finite or list(summary["stats"]) != expect.wanted.names:
        problems.append(f"{info.name} does not tell the statistics of {', '.join(expect.wanted.names)}")


def _without_last_bytes(entries: list[tuple]) -> list[tuple]:
    return entries[:-1] + [entry[:1] for entry in entries[-1:]]
