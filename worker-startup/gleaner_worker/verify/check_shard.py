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
    """Marks the samples of the shard; returns its problems and the statistics in its header.

    The statistics are None for a shard that cannot be downloaded. Its samples get no mark, so they count as missing.
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
        return wrong, content.stats
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
        if content.token_ids is None:
            different += [sample.index for sample in stored]
    if (stated != shard.crc32c or content.has_wrong_values) and not different:
        # The token ids are right, so some activations differ. No checksum shows which.
        different = [index for index in content.sample_idx if index in expected]
    for index in different:
        marks[index] |= DIFFERENT
    return wrong, content.stats


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
    if not isinstance(expected, Sample) or content.row_counts[place] != row_count(expected, pooled):
        return False
    if content.previews is not None and content.previews[place] != expected.preview:
        return False
    if content.kept is not None and content.kept[place] != json.loads(expected.kept):
        return False
    if content.lines is not None and content.lines[place] != (expected.line, expected.chunk):
        return False
    if content.token_lines is not None and not np.array_equal(
        content.token_lines[place], cast(np.ndarray, expected.token_lines)
    ):
        return False
    if content.span_idx is not None and not np.array_equal(
        content.span_idx[place], cast(np.ndarray, expected.span_idx)
    ):
        return False
    if content.masks is not None and not np.array_equal(content.masks[place], cast(np.ndarray, expected.mask)):
        return False
    if content.positions is not None:
        all_tokens = np.arange(len(expected.token_ids))
        if not np.array_equal(
            content.positions[place], all_tokens if expected.positions is None else expected.positions
        ):
            return False
    return content.token_ids is None or np.array_equal(content.token_ids[place], expected.token_ids)
