"""One stream compared with its shards: every sample stored once or rejected once, with its own token ids."""

import os
import sys
from collections.abc import Callable

from ..names import output_prefix, parse_shard
from ..objects import Bucket, ObjectInfo
from .check_shard import check_content
from .expectation import Expectation
from .marks import count, first_of, mark_different
from .rejects import check_rejects, read_rejects
from .shard_metadata import check_metadata, facts_of, is_foreign
from .small_objects import unread
from .stream_samples import StreamSamples
from .summary import check_summary

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
# The numbers of the shards' metadata whose sums the report has.
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
    """Returns the stream's part of the report. `outputs`: every object in its folder under activations/."""
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem)
        if len(problems) <= _MAX_PROBLEMS:
            tell({"problem": problem})

    path = os.path.join(folder, "stream")
    bucket.download(info.name, path, info.generation)
    samples = StreamSamples(path, info.name, expect.reader)
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
                mark_different(marks, facts["first_sample"], facts["last_sample"])
            else:
                found, content_stats = check_content(expect, bucket, shard, samples, folder)
                wrong += found
                if content_stats is not None:
                    stats[shard.name] = content_stats
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
    read_rejects(bucket, named.get("rejects.jsonl"), samples, problems)
    counts = count(marks)
    check_rejects(samples, f"{prefix}rejects.jsonl", problems)
    if is_final:
        check_summary(
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
                f"{info.name} has {counts[key]} samples {key}, the first {samples.where(first_of(marks, key))}"
            )
    if len(problems) > _MAX_PROBLEMS:
        problems = [*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more"]
    return {"stream": stream, "object": info.name, **counts, **_sizes(shards, totals), "problems": problems}


def unread_stream(run: str, stream: str, info: ObjectInfo, outputs: list[ObjectInfo], error: Exception) -> dict:
    """The part of the report for a stream that cannot be read, with the numbers of its shards' metadata."""
    shards = _shards(output_prefix(run, stream), outputs)
    facts = [found for _, shard in shards if (found := facts_of(shard, sys.maxsize))]
    samples = max((found["last_sample"] + 1 for found in facts), default=0)
    problems = [f"{info.name} {unread(error)}"]
    if samples:
        problems.append(f"{info.name} has {samples} samples missing: without the stream they cannot be compared")
    counts = count(bytearray()) | {"samples": samples, "missing": samples}
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
    """One problem for all shards that have this cause."""
    first = shards[0]
    others = f" and {len(shards) - 1} more shards: each" if len(shards) > 1 else ""
    before, generation = (first.metadata.get(key) for key in ("stream_crc32c", "stream_generation"))
    return (
        f"{first.name}{others} was made from other content of {info.name} (crc32c {before} of generation {generation}, "
        f"now {info.crc32c} of generation {info.generation})"
    )
