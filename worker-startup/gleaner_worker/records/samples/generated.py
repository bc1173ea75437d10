"""Continues the prompts of a stream with the tokens that the run generates.

Consecutive prompts form groups of one size, and each group has its answers in one object. So the answers are stored
once, and every attempt makes the same samples, on any hardware.
"""

import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...spec.spec import KEPT_ANSWER
from ..lines.select import Marks
from .documents import Document
from .sample import Reject
from .sample_settings import SampleSettings

GROUP = 256  # prompts


@dataclass(frozen=True)
class Answer:
    """The tokens that follow a prompt."""

    token_ids: np.ndarray  # int32
    text: str


# The answers of a group, by its number from 1 and its prompts; None where the group has no answers.
Answers = Callable[[int, list[Document]], list[Answer] | None]


def continue_documents(
    batches: Iterable[list[Document | Reject]], settings: SampleSettings, answers: Answers
) -> Generator[list[Document | Reject]]:
    """Appends its answer to each document that makes a sample; yields a list for each group."""
    number, items, prompts = 1, list[Document | Reject](), list[Document]()
    is_kept = settings.over_long != "reject"
    for item in (item for batch in batches for item in batch):
        if isinstance(item, Document) and (is_kept or item.length <= settings.max_length):
            prompts.append(item)
        items.append(item)
        if len(prompts) == GROUP:
            yield _continued(number, items, prompts, settings, answers)
            number, items, prompts = number + 1, [], []
    if items:
        yield _continued(number, items, prompts, settings, answers)


def longest_answers(settings: SampleSettings) -> Answers | None:
    """Answers of the most tokens, for estimates; None for a run that generates none."""
    if not settings.new_tokens:
        return None
    longest = Answer(np.zeros(settings.new_tokens, np.int32), "")
    return lambda _number, prompts: [longest] * len(prompts)


def _continued(
    number: int,
    items: list[Document | Reject],
    prompts: list[Document],
    settings: SampleSettings,
    answers: Answers,
) -> list[Document | Reject]:
    found = answers(number, prompts) if prompts else []
    if found is None:
        return items
    by_index = dict(zip((prompt.index for prompt in prompts), found, strict=True))
    return [
        _with(item, by_index[item.index], settings) if isinstance(item, Document) and item.index in by_index else item
        for item in items
    ]


def _with(document: Document, answer: Answer, settings: SampleSettings) -> Document:
    kept = json.loads(document.kept or "{}") | {KEPT_ANSWER: answer.text}
    return replace(
        document,
        token_ids=np.concatenate([document.token_ids, answer.token_ids]),
        marks=_marked(document, len(answer.token_ids), settings.generated_bit),
        kept=json.dumps(kept, separators=(",", ":")),
    )


def _marked(document: Document, count: int, bit: int | None) -> Marks | None:
    marks, length = document.marks, len(document.token_ids)
    if marks is None:
        return None
    marked = np.append(marks.marked, np.full(count, 0 if bit is None else 1 << bit, np.uint8))
    is_first = bit == 0 and marks.ranges is not None  # the spans of source 0 have ranges
    return Marks(marked, np.array([[length, length + count]], np.int32) if is_first else marks.ranges)
