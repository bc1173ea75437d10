"""The settings that, together with the stream, decide which samples there are."""

import logging
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from ..failures import Failure
from ..spec import Spec
from .bos import Bos, bos_rule, bos_warning
from .documents import Cut
from .prompts import PromptWriter, make_prompt_writer
from .select import Marks, Selection, make_selection
from .tokenizer import load_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SampleSettings:
    """The parsed spec, tokenizer and templates of a run; equal for all of its streams.

    vocab_size: above each token id. max_length: most tokens of a sample, without those that the run generates.
    """

    tokenizer: Tokenizer
    vocab_size: int
    max_length: int
    over_long: str
    bos: Bos
    cut: Cut | None  # of runs that cut documents
    writer: PromptWriter
    selection: Selection
    mask_bit: int | None  # of the marks, which spec.mask stores beside the rows
    keep: tuple[str, ...]
    new_tokens: int  # that the run generates after each prompt, at most
    generated_bit: int | None  # of their marks
    warnings: tuple[str, ...] = ()

    @property
    def samples_per_line(self) -> int | None:
        """None for runs that cut documents: only their tokens say how many samples a line makes."""
        return None if self.cut else self.writer.predictions

    def mask_of(self, marks: Marks | None) -> np.ndarray | None:
        """uint8 [length]: 1 for each token in a span of spec.mask; None where the run stores no mask."""
        return None if self.mask_bit is None or marks is None else (marks.marked >> self.mask_bit) & 1


def make_sample_settings(folder: str, spec: Spec, vocab_size: int, max_positions: int) -> SampleSettings:
    """Reads tokenizer.json and the chat template of a model's folder. Raises Failure("model")."""
    tokenizer = load_tokenizer(folder, spec.model)
    # Without added tokens: some models have more of them than embeddings (Gemma 3 1B has one for images). A record with
    # such a token is rejected.
    largest = max(tokenizer.get_vocab(with_added_tokens=False).values(), default=0)
    if largest >= vocab_size:
        raise Failure(
            "model",
            f"Failed to use the tokenizer of {spec.model}: it makes ids up to {largest}, the model has {vocab_size} "
            "embeddings; copy tokenizer.json and the safetensors files from one model",
        )
    if spec.context_size is not None and spec.context_size > max_positions:
        raise Failure(
            "model",
            f"Failed to use context_size {spec.context_size} of run.json: {spec.model} has {max_positions} positions; "
            f"set context_size to at most {max_positions}",
        )
    writer = make_prompt_writer(spec, folder, tokenizer)
    bos = bos_rule(spec, tokenizer, writer.chat)
    warning = bos_warning(bos, writer.chat, spec.model)
    if warning:
        log.warning("%s", warning)
    max_length = spec.max_length(max_positions) - spec.new_tokens
    return SampleSettings(
        tokenizer,
        vocab_size,
        max_length,
        spec.over_long,
        bos,
        _cut(spec, max_length, vocab_size, bos, tokenizer, writer),
        writer,
        make_selection(spec, tokenizer),
        None if spec.mask is None else [source.text for source in spec.span_sources].index(spec.mask),
        spec.keep,
        spec.new_tokens,
        next((bit for bit, source in enumerate(spec.span_sources) if source.kind == "generated"), None),
        (warning,) if warning else (),
    )


def _cut(
    spec: Spec, max_length: int, vocab_size: int, bos: Bos, tokenizer: Tokenizer, writer: PromptWriter
) -> Cut | None:
    if not spec.cuts_documents:
        return None
    if spec.overlap > max_length - 2:
        raise Failure(
            "model",
            f"Failed to use overlap {spec.overlap} of run.json: a chunk of {spec.model} has {max_length} tokens, "
            f"and at least one of them is new; set overlap to at most {max_length - 2}",
        )
    eos = writer.chat.tokens.get("eos_token")
    eos_id = None if eos is None else tokenizer.token_to_id(eos)
    if eos_id is not None and eos_id >= vocab_size:
        raise Failure(
            "model",
            f"Failed to end documents of {spec.model} with its eos_token: the id is {eos_id}, and the model has "
            f"{vocab_size} embeddings; correct eos_token in tokenizer_config.json",
        )
    return Cut(spec.over_long, max_length, spec.overlap, bos.token_id, eos_id)
