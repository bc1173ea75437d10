"""rejects.jsonl compared with the stream: every reject is listed once, and nothing else is."""

import json

from ..objects import Bucket, ObjectInfo
from .marks import BAD, LISTED_AGAIN, LISTED_REJECT, STORED
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
    """Names rejects.jsonl where the list is wrong; the counts of the report name the stream alone."""
    marks = samples.marks
    lacking = [index for index, mark in enumerate(marks) if mark & BAD and not mark & (LISTED_REJECT | STORED)]
    made_up = [index for index, mark in enumerate(marks) if mark & LISTED_REJECT and not mark & BAD]
    for found, problem in (
        (lacking, "lacks {} samples that cannot be stored"),
        (made_up, "lists {} that can be stored"),
    ):
        if found:
            problems.append(f"{name} {problem.format(len(found))}, the first is {samples.where(found[0])}")
