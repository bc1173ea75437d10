"""One shard held against the stream that it was made from, and the marks that it leaves on the stream's lines."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gleaner_reader.errors import ShardError
from gleaner_reader.header import is_number

from ..failures import Damaged, Failure, Unreachable
from ..objects import Bucket, ObjectInfo
from ..records.samples import Reader, Reject, Sample, count_samples, read_samples
from ..shards.plan import row_count, tokens_sha256
from .pickled import read_pickle
from .shard_content import ShardContent, Wanted
from .tensors import read_tensors

# What a sample of the stream is, as bits.
STORED, STORED_AGAIN, DIFFERENT, LISTED_REJECT, LISTED_AGAIN, BAD, CUT = 1, 2, 4, 8, 16, 32, 64
NUMBERS = ("shard", "first_sample", "last_sample", "samples", "rejected", "tokens", "rows")


@dataclass(frozen=True)
class Expectation:
    """What every shard of the run must look like."""

    run: str
    spec_hash: str
    wanted: Wanted
    reader: Reader
    fingerprint: str | None  # of the run's model, where that is written down

    def line_of(self, sample: int) -> int:
        """The number of the line, from 1, that a sample comes from."""
        return sample // self.reader.samples_per_line + 1


class Samples:
    """The stream's samples and rejects, read again in one pass; going back starts over."""

    def __init__(self, path: str, name: str, reader: Reader):
        self.marks = bytearray(count_samples(path, name, reader))
        self._open = lambda: read_samples(path, name, reader)
        self._items, self._next = self._open(), 0

    def range(self, first: int, last: int) -> dict[int, Sample | Reject]:
        if first < self._next:
            self._items, self._next = self._open(), 0
        wanted = range(first, last + 1)
        return {index: item for item in self._read(last) for index in _covered(item) if index in wanted}

    def read_rest(self) -> None:
        """Afterwards every sample that must be rejected is marked so."""
        for _ in self._read(len(self.marks) - 1):
            pass

    def _read(self, last: int) -> Iterator[Sample | Reject]:
        while self._next <= last and (item := next(self._items, None)):
            self._next = item.last + 1
            if isinstance(item, Reject):
                for index in _covered(item):
                    self.marks[index] |= BAD
            elif item.truncated:
                self.marks[item.index] |= CUT
            yield item


def _covered(item: Sample | Reject) -> range:
    return range(item.index, item.last + 1)


def check_metadata(expect: Expectation, stream: str, number: int, shard: ObjectInfo, samples: int) -> list[str]:
    """What the shard's custom metadata says wrongly."""
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
    """The numbers of a shard whose range is one of the stream's; the content of another cannot be looked at."""
    if not all(is_number(shard.metadata.get(key, ""), 18) for key in NUMBERS):
        return None
    facts = {key: int(shard.metadata[key]) for key in NUMBERS}
    return facts if facts["first_sample"] <= facts["last_sample"] < samples else None


def is_foreign(shard: ObjectInfo, stream: ObjectInfo) -> bool:
    """Whether it was made from another content of its stream than is there now."""
    return shard.metadata.get("stream_crc32c") != stream.crc32c


def mark_different(marks: bytearray, facts: dict[str, int]) -> None:
    span = slice(facts["first_sample"], facts["last_sample"] + 1)
    marks[span] = bytes(mark | STORED | DIFFERENT for mark in marks[span])


def unread(error: Exception) -> str:
    """The phrase for an object that cannot be downloaded."""
    if isinstance(error, Damaged):
        return "is damaged: its bytes differ from its checksum"
    return f"cannot be read: {error}"


def check_content(
    expect: Expectation, bucket: Bucket, shard: ObjectInfo, samples: Samples, folder: str
) -> tuple[list[str], dict | None]:
    """Problems of the shard, and the statistics in its header: None where it cannot be downloaded.

    The samples of such a shard get no mark, so they count as missing.
    """
    marks = samples.marks
    first, last = int(shard.metadata["first_sample"]), int(shard.metadata["last_sample"])
    try:
        content = _read(expect, bucket, shard, folder)
    except Unreachable:
        raise
    except (Failure, FileNotFoundError) as error:
        return [unread(error)], None
    made = shard.metadata.get("crc32c")
    wrong = [] if made == shard.crc32c else [f"holds other bytes than were stored (crc32c {shard.crc32c}, then {made})"]
    if content.problems:
        return wrong + content.problems, content.stats
    expected = samples.range(first, last)
    outside = [index for index in content.sample_idx if index not in expected]
    if outside:
        wrong.append(f"holds sample {outside[0]}, which is not among its samples {first} to {last}")
    if any(a >= b for a, b in pairwise(content.sample_idx)):
        wrong.append("holds samples out of order")
    different = []
    for place, index in enumerate(content.sample_idx):
        if 0 <= index < len(marks):
            marks[index] |= STORED_AGAIN if marks[index] & STORED else STORED
            if not _is_same(expected.get(index), content, place, expect.wanted.pooled):
                different.append(index)
    if different:
        wrong.append(
            f"holds {len(different)} samples that are not as in the stream, "
            f"the first at line {expect.line_of(different[0])}"
        )
    stored = [item for index in content.sample_idx if isinstance(item := expected.get(index), Sample)]
    if tokens_sha256(stored) != shard.metadata.get("tokens_sha256"):
        wrong.append("says a tokens_sha256 that its samples do not have")
        # Without token ids inside there is nothing else to tell the right samples from the wrong ones.
        if content.token_ids is None:
            different += [sample.index for sample in stored]
    if made != shard.crc32c and not different:
        # The token ids are right, so it is the activations, and nothing tells whose.
        different = [index for index in content.sample_idx if index in expected]
    for index in different:
        marks[index] |= DIFFERENT
    return wrong, content.stats


def _read(expect: Expectation, bucket: Bucket, shard: ObjectInfo, folder: str) -> ShardContent:
    path = os.path.join(folder, shard.name.rpartition("/")[2])
    bucket.download(shard.name, path, shard.generation)
    content = ShardContent()
    read = read_pickle if expect.wanted.spec.format == "pkl.gz" else read_tensors
    try:
        read(path, shard.metadata, expect.wanted, content)
    except ShardError as error:
        content.problems.append(str(error).removeprefix(f"{path} "))
    finally:
        os.unlink(path)
    return content


def _is_same(expected: Sample | Reject | None, content: ShardContent, place: int, pooled: bool) -> bool:
    if not isinstance(expected, Sample) or content.row_counts[place] != row_count(expected, pooled):
        return False
    if content.previews is not None and content.previews[place] != expected.preview:
        return False
    if content.kept is not None and content.kept[place] != json.loads(expected.kept):
        return False
    if content.positions is not None:
        all_tokens = np.arange(len(expected.token_ids))
        if not np.array_equal(
            content.positions[place], all_tokens if expected.positions is None else expected.positions
        ):
            return False
    return content.token_ids is None or np.array_equal(content.token_ids[place], expected.token_ids)
