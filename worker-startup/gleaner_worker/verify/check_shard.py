"""The content of one shard compared with the stream that it was made from."""

import json
import os
from itertools import pairwise
from typing import cast

import numpy as np

from gleaner_reader.errors import ShardError

from ..failures import Failure, Unreachable
from ..objects import Bucket, ObjectInfo
from ..records.sample import Reject, Sample
from ..shards.plan import row_count, tokens_sha256
from .expectation import Expectation
from .marks import DIFFERENT, STORED, STORED_AGAIN
from .pickled import read_pickle
from .shard_content import ShardContent
from .small_objects import unread
from .stream_samples import StreamSamples
from .tensors import read_tensors


def check_content(
    expect: Expectation, bucket: Bucket, shard: ObjectInfo, samples: StreamSamples, folder: str
) -> tuple[list[str], dict | None]:
    """Marks the samples of the shard; returns its problems and the statistics in its header.

    A shard that cannot be downloaded has None for statistics, and its samples get no mark: they count as missing.
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
            f"the first at line {samples.line_of(different[0])}"
        )
    stored = [item for index in content.sample_idx if isinstance(item := expected.get(index), Sample)]
    if tokens_sha256(stored) != shard.metadata.get("tokens_sha256"):
        wrong.append("says a tokens_sha256 that its samples do not have")
        # A shard without token ids has nothing else that tells right samples from wrong samples.
        if content.token_ids is None:
            different += [sample.index for sample in stored]
    if made != shard.crc32c and not different:
        # The token ids are right, so some activations differ. No checksum shows which.
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
    if content.lines is not None and content.lines[place] != (expected.line, expected.chunk):
        return False
    if content.token_lines is not None and not np.array_equal(
        content.token_lines[place], cast(np.ndarray, expected.token_lines)
    ):
        return False
    if content.positions is not None:
        all_tokens = np.arange(len(expected.token_ids))
        if not np.array_equal(
            content.positions[place], all_tokens if expected.positions is None else expected.positions
        ):
            return False
    return content.token_ids is None or np.array_equal(content.token_ids[place], expected.token_ids)
