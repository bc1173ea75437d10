"""Samples and rejects of a stream, in the order of its lines: the numbering that every later step uses.

Line n (from 0) with P predictions per task makes the samples n * P to n * P + P - 1; P is 1 except for ARC tasks.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from tokenizers import Tokenizer

from ..failures import Failure
from ..spec import Spec
from .kept_fields import kept_fields
from .parse import parse_line
from .prompts import Prompt, PromptWriter, make_prompt_writer, write_prompts
from .reject_reason import RejectReason
from .select import Selection, make_selection, select
from .stream import Line, count_lines, read_lines
from .tokenizer import encode_complete, encode_texts, load_tokenizer

# Tokenising many texts at once uses every core; these two limit the memory of a window.
_WINDOW_ITEMS = 512
_WINDOW_BYTES = 4 * 1024 * 1024
_PREVIEW_CHARS = 200


@dataclass(frozen=True)
class Sample:
    index: int  # line * predictions_per_task + k
    token_ids: np.ndarray  # int32 [length]
    positions: np.ndarray | None  # int32 [rows], of the stored or averaged tokens; None for all
    preview: str
    truncated: bool
    kept: str = ""  # a JSON object of the record's fields that spec.keep names; "" without names

    @property
    def last(self) -> int:
        return self.index


@dataclass(frozen=True)
class Reject:
    """A sample that is not stored, or all samples of a line that cannot be used."""

    index: int  # of the first sample
    reason: str
    samples: int = 1
    line: int | None = None  # zero-based; None where each line is one sample

    @property
    def last(self) -> int:
        return self.index + self.samples - 1

    def record(self) -> dict:
        """The line of rejects.jsonl."""
        line = self.index if self.line is None else self.line
        record = {"line": line + 1, "sample_idx": self.index, "reason": self.reason}
        return record if self.samples == 1 else record | {"samples": self.samples}


@dataclass(frozen=True)
class Reader:
    """The settings that, together with the stream, decide which samples there are."""

    tokenizer: Tokenizer
    vocab_size: int
    max_length: int
    over_long: str
    writer: PromptWriter
    selection: Selection
    keep: tuple[str, ...]

    @property
    def samples_per_line(self) -> int:
        return self.writer.predictions


@dataclass(frozen=True)
class Written:
    """A prompt before it is tokenised."""

    index: int
    line: int
    prompt: Prompt
    kept: str


Window = list[Written | Reject]


def make_reader(folder: str, spec: Spec, vocab_size: int, max_positions: int) -> Reader:
    """Reads tokenizer.json and the chat template of a model's folder. Raises Failure("model")."""
    tokenizer = load_tokenizer(folder, spec.model)
    # Without added tokens: some models have more of them than embeddings (Gemma 3 1B has one for images). A record with
    # such a token is rejected.
    largest = max(tokenizer.get_vocab(with_added_tokens=False).values(), default=0)
    if largest >= vocab_size:
        raise Failure(
            "model",
            f"Failed to use the tokenizer of {spec.model}: it makes ids up to {largest}, the model has {vocab_size} "
            "embeddings; tokenizer.json and model.safetensors are not of one model",
        )
    return Reader(
        tokenizer,
        vocab_size,
        spec.max_length(max_positions),
        spec.over_long,
        make_prompt_writer(spec, folder),
        make_selection(spec, tokenizer),
        spec.keep,
    )


def read_samples(path: str, name: str, reader: Reader) -> Iterator[Sample | Reject]:
    """Yields the samples of the file at `path`, without a gap; `name` is the object's name, for messages."""
    return tokenize_windows(read_windows(path, name, reader), reader)


def count_samples(path: str, name: str, reader: Reader) -> int:
    """The number of samples, stored or rejected."""
    return count_lines(path, name) * reader.samples_per_line


def read_windows(path: str, name: str, reader: Reader) -> Generator[Window]:
    """The first half of read_samples: reads lines and writes prompts. May run on a thread of its own."""
    window: Window = []
    size = 0
    for line in read_lines(path, name):
        for item in _write(line, reader):
            more = _size(item)
            if window and (len(window) >= _WINDOW_ITEMS or size + more > _WINDOW_BYTES):
                yield window
                window, size = [], 0
            window.append(item)
            size += more
    if window:
        yield window


def tokenize_windows(windows: Iterable[Window], reader: Reader) -> Iterator[Sample | Reject]:
    """The second half of read_samples."""
    for window in windows:
        yield from _tokenize(window, reader)


def _write(line: Line, reader: Reader) -> Iterator[Written | Reject]:
    count = reader.samples_per_line
    first = line.index * count
    record = parse_line(line)
    written = record if isinstance(record, RejectReason) else _write_record(record, reader)
    if isinstance(written, RejectReason):
        yield Reject(first, written.text, count, line.index)
        return
    prompts, kept = written
    for index, prompt in enumerate(prompts, first):
        if isinstance(prompt, RejectReason):
            yield Reject(index, prompt.text, line=line.index)
        else:
            yield Written(index, line.index, prompt, kept)


def _write_record(record: dict, reader: Reader) -> tuple[Iterator[Prompt | RejectReason], str] | RejectReason:
    """The prompts of a record and its kept fields."""
    prompts = write_prompts(record, reader.writer)
    if isinstance(prompts, RejectReason):
        return prompts
    kept = kept_fields(record, reader.keep)
    return kept if isinstance(kept, RejectReason) else (prompts, kept)


def _size(item: Written | Reject) -> int:
    if isinstance(item, Reject):
        return len(item.reason)
    # A token id in a list is 8 bytes, and mostly an object of its own.
    return len(item.kept) + len(item.prompt.content) * (1 if isinstance(item.prompt.content, str) else 40)


def _tokenize(window: Window, reader: Reader) -> Iterator[Sample | Reject]:
    texts, complete = _texts(window, False), _texts(window, True)
    plain_ids = iter(encode_texts(texts, reader.tokenizer))
    complete_ids = iter(encode_complete(complete, reader.tokenizer))
    for item in window:
        if isinstance(item, Reject):
            yield item
            continue
        content = item.prompt.content
        if isinstance(content, str):
            made = next(complete_ids if item.prompt.is_complete else plain_ids)
        else:
            made = _check_ids(content, reader)
        if not isinstance(made, RejectReason):
            preview = content if isinstance(content, str) else _decode(content, reader)
            made = _accept(item, made, preview[:_PREVIEW_CHARS], reader)
        yield Reject(item.index, made.text, line=item.line) if isinstance(made, RejectReason) else made


def _texts(window: Window, is_complete: bool) -> list[str]:
    prompts = [item.prompt for item in window if isinstance(item, Written) and item.prompt.is_complete == is_complete]
    return [prompt.content for prompt in prompts if isinstance(prompt.content, str)]


def _check_ids(ids: list[int], reader: Reader) -> list[int] | RejectReason:
    for position, token in enumerate(ids):
        if not 0 <= token < reader.vocab_size:
            number = str(token) if abs(token) < 1 << 63 else "of more than 63 bits"
            return RejectReason(
                f"token id {number} at position {position} is not in the vocabulary (0 to {reader.vocab_size - 1})"
            )
    return ids


def _decode(ids: list[int], reader: Reader) -> str:
    return reader.tokenizer.decode(ids[:_PREVIEW_CHARS], skip_special_tokens=False)


def _accept(item: Written, ids: list[int], preview: str, reader: Reader) -> Sample | RejectReason:
    if not ids:
        return RejectReason("has no tokens")
    truncated = len(ids) > reader.max_length
    if truncated and reader.over_long == "reject":
        return RejectReason(
            f"is {len(ids)} tokens long; the limit is {reader.max_length} "
            "(max_seq_length in run.json, and never more than the model's positions; "
            "over_long: truncate would keep the beginning)"
        )
    token_ids = np.asarray(ids[: reader.max_length], dtype=np.int32)
    if token_ids.max() >= reader.vocab_size:  # a post-processor may add ids that the vocabulary lacks
        return cast(RejectReason, _check_ids(token_ids.tolist(), reader))
    positions = select(reader.selection, token_ids)
    if isinstance(positions, RejectReason):
        return positions
    return Sample(item.index, token_ids, positions, preview, truncated, item.kept)
