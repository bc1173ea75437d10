"""One shard held against the stream that it was made from, and the marks that it leaves on the stream's lines."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..objects import Bucket, ObjectInfo
from ..shards.plan import tokens_sha256
from .content import ShardContent, read_shard
from ..records.samples import Reader, Reject, Sample, read_samples
from ..spec import Spec
from ..records.stream import count_lines

# What a line of the stream is, as bits.
STORED, STORED_AGAIN, DIFFERENT, LISTED_REJECT, LISTED_AGAIN, BAD, CUT = 1, 2, 4, 8, 16, 32, 64
NUMBERS = ("shard", "first_sample", "last_sample", "samples", "rejected", "tokens")


@dataclass(frozen=True)
class Expectation:
    """What every shard of the run must look like."""

    run: str
    spec: Spec
    spec_hash: str
    layers: tuple[int, ...]
    d_model: int
    reader: Reader


class Lines:
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
                self.marks[item.index] |= BAD
            elif item.truncated:
                self.marks[item.index] |= CUT
            yield item


def check_metadata(expect: Expectation, stream: str, number: int, shard: ObjectInfo, lines: int) -> list[str]:
    """What the shard's custom metadata says wrongly."""
    known = {
        "schema": "gleaner/1",
        "run": expect.run,
        "stream": stream,
        "spec_hash": expect.spec_hash,
        "format": expect.spec.format,
    }
    found = shard.metadata
    if not found.get("schema"):
        return ["is no shard of ours: it has no metadata that says so"]
    wrong = [f"says {key} {found.get(key)}, not {value}" for key, value in known.items() if found.get(key) != value]
    unread = [key for key in NUMBERS if not found.get(key, "").isdigit()]
    wrong += [f"says {key} {found.get(key)}, not a number" for key in unread]
    if found.get("final") not in ("true", "false"):
        wrong.append(f"says final {found.get('final')}")
    if unread:
        return wrong
    if int(found["shard"]) != number:
        wrong.append(f"says that it is shard {found['shard']}")
    first, last = int(found["first_sample"]), int(found["last_sample"])
    if not first <= last < lines or int(found["samples"]) + int(found["rejected"]) != last - first + 1:
        wrong.append(
            f"says samples {first} to {last}, {found['samples']} stored and {found['rejected']} rejected, "
            f"of {lines} lines"
        )
    return wrong


def facts_of(shard: ObjectInfo, lines: int) -> dict[str, int] | None:
    """The numbers of a shard whose range is one of the stream's; the content of another cannot be looked at."""
    if any(not shard.metadata.get(key, "").isdigit() for key in NUMBERS):
        return None
    facts = {key: int(shard.metadata[key]) for key in NUMBERS}
    return facts if facts["first_sample"] <= facts["last_sample"] < lines else None


def is_foreign(shard: ObjectInfo, stream: ObjectInfo) -> bool:
    """Whether it was made from another content of its stream than is there now."""
    return shard.metadata.get("stream_crc32c") != stream.crc32c


def mark_different(marks: bytearray, facts: dict[str, int]) -> None:
    span = slice(facts["first_sample"], facts["last_sample"] + 1)
    marks[span] = bytes(mark | STORED | DIFFERENT for mark in marks[span])


def check_content(expect: Expectation, bucket: Bucket, shard: ObjectInfo, lines: Lines, path: str) -> list[str]:
    marks = lines.marks
    first, last = int(shard.metadata["first_sample"]), int(shard.metadata["last_sample"])
    bucket.download(shard.name, path, shard.generation)
    content = read_shard(path, shard.metadata, expect.layers, expect.d_model, expect.spec.dtype)
    os.unlink(path)
    made = shard.metadata.get("crc32c")
    wrong = [] if made == shard.crc32c else [f"holds other bytes than were stored (crc32c {shard.crc32c}, then {made})"]
    if content.problems:
        return wrong + content.problems
    expected = lines.range(first, last)
    outside = [index for index in content.sample_idx if index not in expected]
    if outside:
        wrong.append(f"holds sample {outside[0]}, which is not among its samples {first} to {last}")
    if any(a >= b for a, b in zip(content.sample_idx, content.sample_idx[1:])):
        wrong.append("holds samples out of order")
    different = []
    for position, index in enumerate(content.sample_idx):
        if 0 <= index < len(marks):
            marks[index] |= STORED_AGAIN if marks[index] & STORED else STORED
            if not _is_same(expected.get(index), content, position):
                different.append(index)
    if different:
        wrong.append(
            f"holds {len(different)} samples that are not as in the stream, the first at line {different[0] + 1}"
        )
    samples = [item for index in content.sample_idx if isinstance(item := expected.get(index), Sample)]
    if tokens_sha256(samples) != shard.metadata.get("tokens_sha256"):
        wrong.append("says a tokens_sha256 that its samples do not have")
        # Without token ids inside there is nothing else to tell the right samples from the wrong ones.
        if content.token_ids is None:
            different += [sample.index for sample in samples]
    if made != shard.crc32c and not different:
        # The token ids are right, so it is the activations, and nothing tells whose.
        different = [index for index in content.sample_idx if index in expected]
    for index in different:
        marks[index] |= DIFFERENT
    return wrong


def _is_same(expected: Sample | Reject | None, content: ShardContent, position: int) -> bool:
    if not isinstance(expected, Sample) or content.lengths[position] != len(expected.token_ids):
        return False
    if content.previews is not None and content.previews[position] != expected.preview:
        return False
    return content.token_ids is None or np.array_equal(content.token_ids[position], expected.token_ids)
