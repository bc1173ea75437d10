"""One stream held against its shards: every line stored exactly once or rejected exactly once, with its own token ids."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .names import output_prefix, parse_shard
from .objects import Bucket, ObjectInfo
from .plan import tokens_sha256
from .read_shard import ShardContent, read_shard
from .samples import Reader, Reject, Sample, read_samples
from .spec import Spec
from .stream import count_lines

COUNTS = ("samples", "stored_once", "missing", "doubled", "different", "rejected", "shards", "bytes", "tokens")
_MAX_PROBLEMS = 50
# What a line of the stream is, as bits.
_STORED, _STORED_AGAIN, _DIFFERENT, _LISTED_REJECT, _LISTED_AGAIN, _BAD = 1, 2, 4, 8, 16, 32
_NUMBERS = ("shard", "first_sample", "last_sample", "samples", "rejected", "tokens")


@dataclass(frozen=True)
class Expectation:
    """What every shard of the run must look like."""

    run: str
    spec: Spec
    spec_hash: str
    layers: tuple[int, ...]
    d_model: int
    reader: Reader


class _Lines:
    """The stream's lines as samples and rejects, read again in one pass; going back starts over."""

    def __init__(self, path: str, name: str, reader: Reader):
        self.marks = bytearray(count_lines(path, name))
        self._open = lambda: read_samples(path, name, reader)
        self._items, self._next = self._open(), 0

    def range(self, first: int, last: int) -> dict[int, Sample | Reject]:
        if first < self._next:
            self._items, self._next = self._open(), 0
        return {item.index: item for item in self._read(last) if item.index >= first}

    def read_rest(self) -> None:
        """Afterwards every line that must be rejected is marked so."""
        for _ in self._read(len(self.marks) - 1):
            pass

    def _read(self, last: int) -> Iterator[Sample | Reject]:
        while self._next <= last and (item := next(self._items, None)):
            self._next = item.index + 1
            if isinstance(item, Reject):
                self.marks[item.index] |= _BAD
            yield item


def verify_stream(
    expect: Expectation, bucket: Bucket, stream: str, info: ObjectInfo, outputs: list[ObjectInfo], folder: str, tell: Callable[[dict], None]
) -> dict:
    """The stream's part of the report. `outputs`: every object in its folder under activations/."""
    problems: list[str] = []
    path = os.path.join(folder, "stream")
    bucket.download(info.name, path, info.generation)
    lines = _Lines(path, info.name, expect.reader)
    marks = lines.marks
    prefix = output_prefix(expect.run, stream)
    named = {other.name.removeprefix(prefix): other for other in outputs}
    shards = sorted((parsed[0], other) for other in outputs if (parsed := parse_shard(prefix, other.name)))
    end, tokens, is_final = -1, 0, False
    for position, (number, shard) in enumerate(shards):
        tell({"stream": stream, "shards_done": position, "shards": len(shards)})
        wrong = _check_metadata(expect, stream, info, number, shard, len(marks))
        if not wrong:
            facts = {key: int(shard.metadata[key]) for key in _NUMBERS}
            if number != position + 1:
                wrong.append(f"is shard {number} where shard {position + 1} is due")
            if facts["first_sample"] != end + 1:
                wrong.append(f"starts at sample {facts['first_sample']}, but the shards before it end at sample {end}")
            if is_final:
                wrong.append("comes after the final shard")
            end, tokens = facts["last_sample"], tokens + facts["tokens"]
            is_final = shard.metadata["final"] == "true"
            wrong += _check_content(expect, bucket, shard, lines, os.path.join(folder, "shard"))
        problems += [f"{shard.name} {what}" for what in wrong]
    if not is_final or end != len(marks) - 1:
        problems.append(f"{info.name} is not finished: {len(marks)} samples, of which the shards cover {end + 1}")
    lines.read_rest()
    _read_rejects(bucket, named.get("rejects.jsonl"), marks, problems)
    counts = _count(marks)
    if is_final:
        _check_summary(expect, bucket, named.get("metadata.json"), prefix, counts, tokens, [shard for _, shard in shards], problems)
    for key in ("missing", "doubled", "different"):
        if counts[key]:
            problems.append(f"{info.name} has {counts[key]} samples {key}, the first at line {_first(marks, key) + 1}")
    if len(problems) > _MAX_PROBLEMS:
        problems = [*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more"]
    sizes = {"shards": len(shards), "bytes": sum(shard.size_bytes for _, shard in shards), "tokens": tokens}
    return {"stream": stream, "object": info.name, **counts, **sizes, "problems": problems}


def _check_metadata(expect: Expectation, stream: str, info: ObjectInfo, number: int, shard: ObjectInfo, lines: int) -> list[str]:
    """What the shard's custom metadata says wrongly; only when it is empty can the content be looked at."""
    known = {"schema": "gleaner/1", "run": expect.run, "stream": stream, "spec_hash": expect.spec_hash, "format": expect.spec.format}
    found = shard.metadata
    wrong = [f"says {key} {found.get(key)}, not {value}" for key, value in known.items() if found.get(key) != value]
    if found.get("stream_crc32c") != info.crc32c:
        wrong.append(
            f"was made from other content of {info.name} (crc32c {found.get('stream_crc32c')} of generation "
            f"{found.get('stream_generation')}, now {info.crc32c} of generation {info.generation})"
        )
    wrong += [f"says {key} {found.get(key)}, not a number" for key in _NUMBERS if not found.get(key, "").isdigit()]
    if wrong:
        return wrong
    first, last = int(found["first_sample"]), int(found["last_sample"])
    if int(found["shard"]) != number:
        wrong.append(f"says that it is shard {found['shard']}")
    if not first <= last < lines or int(found["samples"]) + int(found["rejected"]) != last - first + 1:
        wrong.append(f"says samples {first} to {last}, {found['samples']} stored and {found['rejected']} rejected, of {lines} lines")
    if found.get("final") not in ("true", "false"):
        wrong.append(f"says final {found.get('final')}")
    return wrong


def _check_content(expect: Expectation, bucket: Bucket, shard: ObjectInfo, lines: _Lines, path: str) -> list[str]:
    bucket.download(shard.name, path, shard.generation)
    content = read_shard(path, shard.metadata, expect.layers, expect.d_model, expect.spec.stored_dtype)
    os.unlink(path)
    if content.problems:
        return content.problems
    marks = lines.marks
    first, last = int(shard.metadata["first_sample"]), int(shard.metadata["last_sample"])
    expected = lines.range(first, last)
    wrong = []
    outside = [index for index in content.sample_idx if index not in expected]
    if outside:
        wrong.append(f"holds sample {outside[0]}, which is not among its samples {first} to {last}")
    if any(a >= b for a, b in zip(content.sample_idx, content.sample_idx[1:])):
        wrong.append("holds samples out of order")
    for position, index in enumerate(content.sample_idx):
        if 0 <= index < len(marks):
            marks[index] |= _STORED_AGAIN if marks[index] & _STORED else _STORED
            if not _is_same(expected.get(index), content, position):
                marks[index] |= _DIFFERENT
    samples = [item for index in content.sample_idx if isinstance(item := expected.get(index), Sample)]
    if tokens_sha256(samples) != shard.metadata.get("tokens_sha256"):
        wrong.append("says a tokens_sha256 that its samples do not have")
        # Without token ids inside there is nothing else to tell the right samples from the wrong ones.
        if content.token_ids is None:
            for sample in samples:
                marks[sample.index] |= _DIFFERENT
    return wrong


def _is_same(expected: Sample | Reject | None, content: ShardContent, position: int) -> bool:
    if not isinstance(expected, Sample) or content.lengths[position] != len(expected.token_ids):
        return False
    if content.previews is not None and content.previews[position] != expected.preview:
        return False
    return content.token_ids is None or np.array_equal(content.token_ids[position], expected.token_ids)


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
        marks[index] |= _LISTED_AGAIN if marks[index] & _LISTED_REJECT else _LISTED_REJECT


def _kind(mark: int) -> str:
    if mark & (_STORED_AGAIN | _LISTED_AGAIN) or (mark & _STORED and mark & _LISTED_REJECT):
        return "doubled"
    if mark & _STORED:
        return "different" if mark & (_DIFFERENT | _BAD) else "stored_once"
    return "rejected" if mark & _LISTED_REJECT and mark & _BAD else "missing"


def _count(marks: bytearray) -> dict[str, int]:
    counts = {"samples": len(marks), "stored_once": 0, "missing": 0, "doubled": 0, "different": 0, "rejected": 0}
    for mark in set(marks):
        counts[_kind(mark)] += marks.count(mark)
    return counts


def _first(marks: bytearray, kind: str) -> int:
    return next(index for index, mark in enumerate(marks) if _kind(mark) == kind)


def _check_summary(
    expect: Expectation, bucket: Bucket, info: ObjectInfo | None, prefix: str, counts: dict, tokens: int, shards: list[ObjectInfo], problems: list[str]
) -> None:
    if not info:
        problems.append(f"{prefix}metadata.json is missing")
        return
    try:
        summary = json.loads(bucket.read(info.name) or b"")
        entries = [(entry["gcs_path"], entry["size_bytes"], entry["crc32c"]) for entry in summary["shards"]]
        said = [summary[key] for key in ("total_samples", "total_rejected", "total_tokens", "total_shards", "spec_hash")]
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{info.name} is not a summary of ours: {error!r}")
        return
    if said != [counts["stored_once"], counts["rejected"], tokens, len(shards), expect.spec_hash]:
        problems.append(f"{info.name} says samples, rejected, tokens, shards, spec {said}, which is not what is stored")
    if entries != [(f"gs://{bucket.name}/{shard.name}", shard.size_bytes, shard.crc32c) for shard in shards]:
        problems.append(f"{info.name} lists other shards, sizes or checksums than are stored")
