"""Compares rejects.jsonl with the stream: the file lists every reject exactly once, and no other sample."""

import json

from ..storage.objects import Bucket, ObjectInfo
from .marks import LISTED_AGAIN, LISTED_REJECT, REJECTED, STORED
from .small_objects import read_object
from .stream_samples import StreamSamples


def read_rejects(bucket: Bucket, info: ObjectInfo | None, samples: StreamSamples, problems: list[str]) -> None:
    """Marks the samples that rejects.jsonl lists. A record lists one sample, or all samples of its line."""
    if info is None:
        return
    marks = samples.marks
    for number, line in enumerate((read_object(bucket, info, problems) or b"").splitlines(), 1):
        try:
            record = json.loads(line)
            index, count = record["sample_idx"], record.get("samples", 1)
            if type(index) is not int or type(count) is not int or not 0 <= index < index + count <= len(marks):
                raise ValueError("no such sample in the stream")
            if record["line"] != samples.line_of(index) or not record["reason"]:
                raise ValueError("no such line in the stream, or no reason")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"{info.name} line {number} is not a record of a rejected line: {error!r}")
            continue
        for sample in range(index, index + count):
            marks[sample] |= LISTED_AGAIN if marks[sample] & LISTED_REJECT else LISTED_REJECT


def check_rejects(samples: StreamSamples, name: str, problems: list[str]) -> None:
    """Adds a problem that names rejects.jsonl where its list is wrong; the problems of the counts name the stream."""
    marks = samples.marks
    unlisted = [index for index, mark in enumerate(marks) if mark & REJECTED and not mark & (LISTED_REJECT | STORED)]
    storable = [index for index, mark in enumerate(marks) if mark & LISTED_REJECT and not mark & REJECTED]
    for indices, problem in (
        (unlisted, "lacks {} samples that cannot be stored"),
        (storable, "lists {} that can be stored"),
    ):
        if indices:
            problems.append(f"{name} {problem.format(len(indices))}, the first is {samples.where(indices[0])}")
