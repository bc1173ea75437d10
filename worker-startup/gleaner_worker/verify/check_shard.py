"""Compares the content of one shard with the stream that it was made from."""

import hashlib
import json
import os
from itertools import pairwise
from typing import cast

import numpy as np

from gleaner_reader.format.errors import ShardError

from ..failures import Failure, Unreachable
from ..records.samples.sample import Reject, Sample
from ..shards.plan import row_count, tokens_sha256
from ..storage.objects import Bucket, ObjectInfo
from .marks import DIFFERENT, STORED, STORED_AGAIN
from .pickled import read_pickle
from .shard_content import Expectation, ShardContent
from .small_objects import unread
from .stream_samples import StreamSamples
from .tensors import read_tensors


def check_content(
    expect: Expectation, bucket: Bucket, shard: ObjectInfo, samples: StreamSamples, folder: str
) -> tuple[list[str], dict | None]:
    """Marks the samples of the shard; returns its problems and the facts of its header.

    The facts are None for a shard that cannot be downloaded. Its samples get no mark, so they count as missing.
    Raises Unreachable.
    """
    marks = samples.marks
    first, last = int(shard.metadata["first_sample"]), int(shard.metadata["last_sample"])
    try:
        content = _read(expect, bucket, shard, folder)
    except Unreachable:
        raise
    except (Failure, FileNotFoundError) as error:
        return [unread(error)], None
    stated = shard.metadata.get("crc32c")
    wrong: list[str] = []
    if stated != shard.crc32c:
        wrong.append(f"holds other bytes than were stored (crc32c {shard.crc32c}, its metadata says {stated})")
    elif (sha256 := shard.metadata.get("sha256")) != content.sha256:
        stated = None
        wrong.append(f"holds other bytes than were stored (sha256 {content.sha256}, its metadata says {sha256})")
    wrong += content.problems
    if not content.is_read:
        return wrong, content.facts
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
            if not _is_same(expected.get(index), content, place, expect.pooled):
                different.append(index)
    if different:
        wrong.append(
            f"holds {len(different)} samples that differ from the stream, "
            f"the first at line {samples.line_of(different[0])}"
        )
    stored = [item for index in content.sample_idx if isinstance(item := expected.get(index), Sample)]
    tokens = sum(len(sample.token_ids) for sample in stored)
    if tokens != int(shard.metadata["tokens"]):
        wrong.append(f"says tokens {shard.metadata['tokens']}, but its samples have {tokens}")
    if tokens_sha256(stored) != shard.metadata.get("tokens_sha256"):
        wrong.append("says a tokens_sha256 that its samples do not have")
        # Without token ids in the shard, only this digest covers the tokens of its samples.
        if "token_ids" not in content.parts:
            different += [sample.index for sample in stored]
    if (stated != shard.crc32c or content.has_wrong_values) and not different:
        # The token ids are right, so some activations differ. No checksum shows which.
        different = [index for index in content.sample_idx if index in expected]
    for index in different:
        marks[index] |= DIFFERENT
    return wrong, content.facts


def _read(expect: Expectation, bucket: Bucket, shard: ObjectInfo, folder: str) -> ShardContent:
    path = os.path.join(folder, shard.name.rpartition("/")[2])
    bucket.download(shard.name, path, shard.generation)
    with open(path, "rb") as file:
        content = ShardContent(hashlib.file_digest(file, "sha256").hexdigest())
    read = read_pickle if expect.spec.format == "pkl.gz" else read_tensors
    try:
        read(path, shard.metadata, expect, content)
    except ShardError as error:
        content.problems.append(str(error).removeprefix(f"{path} "))
    finally:
        os.unlink(path)
    return content


def _is_same(expected: Sample | Reject | None, content: ShardContent, place: int, pooled: bool) -> bool:
    """Whether the shard has exactly this sample, in every part that it stores."""
    if not isinstance(expected, Sample) or content.row_counts[place] != row_count(expected, pooled):
        return False
    parts = {
        "token_ids": expected.token_ids,
        "positions": np.arange(len(expected.token_ids)) if expected.positions is None else expected.positions,
        "span_idx": expected.span_idx,
        "mask": expected.mask,
        "token_lines": expected.token_lines,
        "kept": json.loads(expected.kept) if "kept" in content.parts else None,
        "preview": expected.preview,
        "line": (expected.line, expected.chunk),
    }
    return all(
        np.array_equal(values[place], cast(np.ndarray, parts[name]))
        if isinstance(values[place], np.ndarray)
        else values[place] == parts[name]
        for name, values in content.parts.items()
    )
