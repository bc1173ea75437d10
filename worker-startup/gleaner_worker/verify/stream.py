"""Compares a stream with its shards: each sample is stored once or rejected once, with its own token ids."""

import os
import sys
from collections.abc import Callable

from ..names import output_prefix, parse_shard
from ..shards.answers import stored_answers
from ..storage.objects import Bucket, ObjectInfo
from .check_shard import check_content
from .coverage import Coverage
from .marks import count, first_of, mark_different
from .rejects import check_rejects, read_rejects
from .shard_content import Expectation
from .shard_metadata import check_metadata, is_foreign, shard_numbers
from .small_objects import unread
from .stream_samples import StreamSamples
from .summary import check_summary

COUNTS = (*count(bytearray()), "shards", "bytes", "tokens", "rows")
# The numbers in the metadata of shards that the report adds up.
_TOTALS = ("samples", "tokens", "rows")
_MAX_PROBLEMS = 50


def verify_stream(
    expect: Expectation,
    bucket: Bucket,
    stream: str,
    info: ObjectInfo,
    outputs: list[ObjectInfo],
    folder: str,
    on_progress: Callable[[dict], None],
) -> dict:
    """Returns the stream's part of the report. `outputs`: every object in its folder under activations/.

    folder, on_progress: as verify_run. Raises Failure or FileNotFoundError when the stream cannot be read.
    """
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem)
        if len(problems) <= _MAX_PROBLEMS:
            on_progress({"problem": problem})

    path = os.path.join(folder, "stream")
    bucket.download(info.name, path, info.generation)
    answers = None
    if expect.spec.generates:
        answers = stored_answers(bucket, expect.run, stream, info, (expect.spec, expect.spec_hash), expect.settings)
    samples = StreamSamples(path, info.name, expect.settings, answers)
    marks = samples.marks
    prefix = output_prefix(expect.run, stream)
    by_name = {other.name.removeprefix(prefix): other for other in outputs}
    shards = _shards(prefix, outputs)
    coverage = Coverage(prefix, _TOTALS)
    facts: dict[str, dict] = {}
    foreign: list[ObjectInfo] = []
    for position, (number, shard) in enumerate(shards):
        on_progress({"shards_done": position, "shards": len(shards)})
        if gap := coverage.gap_before(number):
            report(gap)
        numbers = shard_numbers(shard, len(marks))
        wrong = check_metadata(expect, stream, number, shard, len(marks)) + coverage.add(number, shard, numbers)
        if numbers and is_foreign(shard, info):
            foreign.append(shard)
            mark_different(marks, numbers["first_sample"], numbers["last_sample"])
        elif numbers:
            content_problems, content_facts = check_content(expect, bucket, shard, samples, folder)
            wrong += content_problems
            if content_facts is not None:
                facts[shard.name] = content_facts
        for problem in wrong:
            report(f"{shard.name} {problem}")
    if foreign:
        problems.append(_describe_foreign(foreign, info))
    if missing := coverage.missing_end(info.name, len(marks)):
        problems.append(missing)
    samples.read_rest()
    read_rejects(bucket, by_name.get("rejects.jsonl"), samples, problems)
    counts = count(marks)
    check_rejects(samples, f"{prefix}rejects.jsonl", problems)
    if coverage.is_final:
        summary, infos = by_name.get("metadata.json"), [shard for _, shard in shards]
        check_summary(expect, bucket, summary, prefix, counts | coverage.totals, infos, facts, problems)
    problems += [
        f"{info.name} has {counts[key]} samples {key}, the first {samples.where(first_of(marks, key))}"
        for key in ("missing", "doubled", "different")
        if counts[key]
    ]
    if len(problems) > _MAX_PROBLEMS:
        problems = [*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more"]
    return {"stream": stream, "object": info.name, **counts, **_sizes(shards, coverage.totals), "problems": problems}


def unread_stream(run: str, stream: str, info: ObjectInfo, outputs: list[ObjectInfo], error: Exception) -> dict:
    """The part of the report for a stream that cannot be read, with the numbers in the metadata of its shards."""
    shards = _shards(output_prefix(run, stream), outputs)
    facts = [numbers for _, shard in shards if (numbers := shard_numbers(shard, sys.maxsize))]
    samples = max((numbers["last_sample"] + 1 for numbers in facts), default=0)
    problems = [f"{info.name} {unread(error)}"]
    if samples:
        problems.append(f"{info.name} has {samples} samples missing: without the stream they cannot be compared")
    counts = count(bytearray()) | {"samples": samples, "missing": samples}
    totals = {key: sum(numbers[key] for numbers in facts) for key in _TOTALS}
    return {"stream": stream, "object": info.name, **counts, **_sizes(shards, totals), "problems": problems}


def _shards(prefix: str, outputs: list[ObjectInfo]) -> list[tuple[int, ObjectInfo]]:
    return sorted(
        ((parsed[0], other) for other in outputs if (parsed := parse_shard(prefix, other.name))),
        key=lambda shard: (shard[0], shard[1].name),
    )


def _sizes(shards: list[tuple[int, ObjectInfo]], totals: dict[str, int]) -> dict[str, int]:
    size_bytes = sum(shard.size_bytes for _, shard in shards)
    return {"shards": len(shards), "bytes": size_bytes, "tokens": totals["tokens"], "rows": totals["rows"]}


def _describe_foreign(shards: list[ObjectInfo], info: ObjectInfo) -> str:
    """The problem of all shards that were made from other content of the stream."""
    first = shards[0]
    others = f" and {len(shards) - 1} more shards: each" if len(shards) > 1 else ""
    before, generation = (first.metadata.get(key) for key in ("stream_crc32c", "stream_generation"))
    return (
        f"{first.name}{others} was made from other content of {info.name} (crc32c {before} of generation {generation}, "
        f"now {info.crc32c} of generation {info.generation})"
    )
