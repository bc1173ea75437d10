"""The settings that, together with the stream, decide which samples there are."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

import numpy as np

from ...failures import Failure
from ...spec.spec import Spec
from ..lines.select import Marks, Selection, make_selection
from ..lines.stream import Line
from .documents import Cut, Document
from .sample import Reject

Documents = list[Document | Reject]


@dataclass(frozen=True)
class TokenizerFacts:
    """What the samples of a run depend on in the model's files, beside the tokens of a text."""

    bos_id: int | None
    eos_id: int | None  # of the chat template's eos_token
    special_ids: tuple[int, ...]  # of the added tokens that are special
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SampleSettings:
    """The settings of a run; equal for all of its streams. Its subclasses tokenise here, or in processes with limits.

    vocab_size: above each token id. max_length: most tokens of a sample, without those that the run generates.
    """

    vocab_size: int
    max_length: int
    over_long: str
    cut: Cut | None  # of runs that cut documents
    selection: Selection
    mask_bit: int | None  # of the marks, which spec.mask stores beside the rows
    predictions: int  # samples of a line, in runs that cut no documents
    new_tokens: int  # that the run generates after each prompt, at most
    generated_bit: int | None  # of their marks
    special_ids: tuple[int, ...]
    warnings: tuple[str, ...]

    @property
    def samples_per_line(self) -> int | None:
        """None for runs that cut documents: only their tokens say how many samples a line makes."""
        return None if self.cut else self.predictions

    def mask_of(self, marks: Marks | None) -> np.ndarray | None:
        """uint8 [length]: 1 for each token in a span of spec.mask; None where the run stores no mask."""
        return None if self.mask_bit is None or marks is None else (marks.marked >> self.mask_bit) & 1

    def tokenize(self, batches: Iterable[list[Line]], name: str, check: Callable[[], None]) -> Generator[Documents]:
        """The documents and rejects of each batch of lines, in the order of the batches.

        name: of the stream's object, for messages. check: called before lines, or during waits; it may raise. Raises
        Failure.
        """
        raise NotImplementedError

    def decode(self, token_ids: list[int]) -> str:
        """The text, with special tokens; the empty text where the decoder of tokenizer.json fails or panics."""
        raise NotImplementedError

    def texts(self, token_ids: list[int]) -> list[str]:
        """The part of the decoded text that each token adds. A character of several tokens is with the last of them."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what the settings have started, also while it works."""


def common_settings(spec: Spec, vocab_size: int, max_positions: int, facts: TokenizerFacts) -> dict:
    """The fields of SampleSettings. Raises Failure("model")."""
    if spec.context_size is not None and spec.context_size > max_positions:
        raise Failure(
            "model",
            f"Failed to use context_size {spec.context_size} of run.json: {spec.model} has {max_positions} positions; "
            f"set context_size to at most {max_positions}",
        )
    max_length = spec.max_length(max_positions) - spec.new_tokens
    sources = spec.span_sources
    return {
        "vocab_size": vocab_size,
        "max_length": max_length,
        "over_long": spec.over_long,
        "cut": _cut(spec, max_length, vocab_size, facts),
        "selection": make_selection(spec, facts.special_ids),
        "mask_bit": None if spec.mask is None else [source.text for source in sources].index(spec.mask),
        "predictions": spec.record.predictions_per_task,
        "new_tokens": spec.new_tokens,
        "generated_bit": next((bit for bit, source in enumerate(sources) if source.kind == "generated"), None),
        "special_ids": facts.special_ids,
        "warnings": facts.warnings,
    }


def _cut(spec: Spec, max_length: int, vocab_size: int, facts: TokenizerFacts) -> Cut | None:
    if not spec.cuts_documents:
        return None
    if spec.overlap > max_length - 2:
        raise Failure(
            "model",
            f"Failed to use overlap {spec.overlap} of run.json: a chunk of {spec.model} has {max_length} tokens, "
            f"and at least one of them is new; set overlap to at most {max_length - 2}",
        )
    if facts.eos_id is not None and facts.eos_id >= vocab_size:
        raise Failure(
            "model",
            f"Failed to end documents of {spec.model} with its eos_token: the id is {facts.eos_id}, and the model has "
            f"{vocab_size} embeddings; correct eos_token in tokenizer_config.json",
        )
    return Cut(spec.over_long, max_length, spec.overlap, facts.bos_id, facts.eos_id)
