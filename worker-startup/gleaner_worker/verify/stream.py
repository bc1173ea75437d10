"""One stream held against its shards: every line stored once or rejected once, with its own token ids."""

import json
import os
from collections.abc import Callable

from ..names import output_prefix, parse_shard
from ..objects import Bucket, ObjectInfo
from .shard import (
    BAD,
    CUT,
    DIFFERENT,
    LISTED_AGAIN,
    LISTED_REJECT,
    STORED,
    STORED_AGAIN,
    Expectation,
    Lines,
    check_content,
    check_metadata,
    facts_of,
    is_foreign,
    mark_different,
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
)
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
    path = os.path.join(folder, "stream")
    bucket.download(info.name, path, info.generation)
    lines = Lines(path, info.name, expect.reader)
    marks = lines.marks
    prefix = output_prefix(expect.run, stream)
    named = {other.name.removeprefix(prefix): other for other in outputs}
    shards = sorted(
        ((parsed[0], other) for other in outputs if (parsed := parse_shard(prefix, other.name))),
        key=lambda found: (found[0], found[1].name),
    )
    before: tuple[int, ObjectInfo] | None = None
    end, tokens, is_final = -1, 0, False
    foreign: list[ObjectInfo] = []
    for position, (number, shard) in enumerate(shards):
        tell({"stream": stream, "shards_done": position, "shards": len(shards)})
        wrong = check_metadata(expect, stream, number, shard, len(marks))
        due = before[0] + 1 if before else 1
        if before and number == before[0]:
            wrong.append(f"is shard {number}, as {before[1].name} is")
        elif number != due and not is_final:
            problems.append(_missing(prefix, due, number - 1))
        if facts := facts_of(shard, len(marks)):
            if number == due and facts["first_sample"] != end + 1:
                wrong.append(f"starts at sample {facts['first_sample']}, but the shards before it end at sample {end}")
            if is_final:
                wrong.append("comes after the final shard")
            end, tokens = max(end, facts["last_sample"]), tokens + facts["tokens"]
            is_final = shard.metadata.get("final") == "true"
            if is_foreign(shard, info):
                foreign.append(shard)
                mark_different(marks, facts)
            else:
                wrong += check_content(expect, bucket, shard, lines, os.path.join(folder, "shard"))
        problems += [f"{shard.name} {what}" for what in wrong]
        before = (number, shard)
    if foreign:
        problems.append(_describe_foreign(foreign, info))
    if not is_final or end != len(marks) - 1:
        due = before[0] + 1 if before else 1
        left = f"the shards cover {end + 1}" if is_final else f"{_missing(prefix, due, due)}, and perhaps more"
        problems.append(f"{info.name} is not finished: of its {len(marks)} samples {left}")
    lines.read_rest()
    _read_rejects(bucket, named.get("rejects.jsonl"), marks, problems)
    counts = _count(marks)
    _check_rejects(marks, f"{prefix}rejects.jsonl", problems)
    if is_final:
        _check_summary(
            expect,
            bucket,
            named.get("metadata.json"),
            prefix,
            counts,
            tokens,
            [shard for _, shard in shards],
            problems,
        )
    for key in ("missing", "doubled", "different"):
        if counts[key]:
            problems.append(f"{info.name} has {counts[key]} samples {key}, the first at line {_first(marks, key) + 1}")
    if len(problems) > _MAX_PROBLEMS:
        problems = [*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more"]
    sizes = {"shards": len(shards), "bytes": sum(shard.size_bytes for _, shard in shards), "tokens": tokens}
    return {"stream": stream, "object": info.name, **counts, **sizes, "problems": problems}


def _missing(prefix: str, first: int, last: int) -> str:
    if first >= last:
        return f"{prefix}shard_{first:04d} is missing"
    return f"{prefix}shard_{first:04d} to shard_{last:04d} are missing"


def _describe_foreign(shards: list[ObjectInfo], info: ObjectInfo) -> str:
    """One line for however many shards have this one cause."""
    first = shards[0]
    others = f" and {len(shards) - 1} more shards: each" if len(shards) > 1 else ""
    return (
        f"{first.name}{others} was made from other content of {info.name} (crc32c {first.metadata.get('stream_crc32c')} "
        f"of generation {first.metadata.get('stream_generation')}, now {info.crc32c} of generation {info.generation})"
    )


def _read_rejects(bucket: Bucket, info: ObjectInfo | None, marks: bytearray, problems: list[str]) -> None:
    for number, line in enumerate((bucket.read(info.name) or b"").splitlines() if info else [], 1):
        try:
            record = json.loads(line)
            index = record["sample_idx"]
            if record["line"] != index + 1 or not record["reason"] or not 0 <= index < len(marks):
                raise ValueError("no such line in the stream")
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"{info.name} line {number} is not a record of a rejected line: {error!r}")
            continue
        marks[index] |= LISTED_AGAIN if marks[index] & LISTED_REJECT else LISTED_REJECT


def _check_rejects(marks: bytearray, name: str, problems: list[str]) -> None:
    """Names the file where it is at fault; the counts alone would name only the stream."""
    lacking = [index for index, mark in enumerate(marks) if mark & BAD and not mark & (LISTED_REJECT | STORED)]
    made_up = [index for index, mark in enumerate(marks) if mark & LISTED_REJECT and not mark & BAD]
    if lacking:
        problems.append(f"{name} lacks {len(lacking)} lines that cannot be stored, the first is line {lacking[0] + 1}")
    if made_up:
        problems.append(f"{name} lists {len(made_up)} lines that can be stored, the first is line {made_up[0] + 1}")


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
    counts: dict,
    tokens: int,
    shards: list[ObjectInfo],
    problems: list[str],
) -> None:
    if not info:
        problems.append(f"{prefix}metadata.json is missing")
        return
    try:
        summary = json.loads(bucket.read(info.name) or b"")
        entries = [(entry["gcs_path"], entry["size_bytes"], entry["crc32c"]) for entry in summary["shards"]]
        said = [
            summary[key] for key in ("total_samples", "total_rejected", "total_tokens", "total_shards", "spec_hash")
        ]
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{info.name} is not a summary of ours: {error!r}")
        return
    if said != [counts["stored_once"], counts["rejected"], tokens, len(shards), expect.spec_hash]:
        problems.append(f"{info.name} says samples, rejected, tokens, shards, spec {said}, which is not what is stored")
    if entries != [(f"gs://{bucket.name}/{shard.name}", shard.size_bytes, shard.crc32c) for shard in shards]:
        problems.append(f"{info.name} lists other shards, sizes or checksums than are stored")
