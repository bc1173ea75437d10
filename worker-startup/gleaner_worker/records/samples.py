"""From the lines of a stream to samples and rejects, in line order: what every later step agrees on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from ..failures import Failure
from .parse import Bad, parse_record
from ..spec import RecordSpec, Spec
from .stream import Line, read_lines

# Tokenising many lines at once uses every core; these two bound what is held meanwhile.
_WINDOW_LINES = 512
_WINDOW_BYTES = 4 * 1024 * 1024
_PREVIEW_CHARS = 200


@dataclass(frozen=True)
class Sample:
    index: int  # zero-based line number
    token_ids: np.ndarray  # int32 [length]
    preview: str
    truncated: bool


@dataclass(frozen=True)
class Reject:
    index: int
    reason: str

    def record(self) -> dict:
        """The line of rejects.jsonl."""
        return {"line": self.index + 1, "sample_idx": self.index, "reason": self.reason}


@dataclass(frozen=True)
class Reader:
    """All that decides, together with the stream itself, which samples there are."""

    tokenizer: Tokenizer
    vocab_size: int
    max_length: int
    over_long: str
    record: RecordSpec


def make_reader(tokenizer_path: str, spec: Spec, vocab_size: int, max_positions: int) -> Reader:
    try:
        tokenizer = Tokenizer.from_file(tokenizer_path)
    except Exception as error:  # tokenizers raises plain Exception
        raise Failure("model", f"Failed to read {tokenizer_path} of {spec.model}: {error}") from error
    # tokenizer.json may carry both; either would change samples without a word.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= vocab_size:
        raise Failure(
            "model",
            f"Failed to use the tokenizer of {spec.model}: it makes ids up to {largest}, the model has {vocab_size} "
            "embeddings; tokenizer.json and model.safetensors are not of one model",
        )
    return Reader(tokenizer, vocab_size, min(spec.max_seq_length, max_positions), spec.over_long, spec.record)


def read_samples(path: str, name: str, reader: Reader) -> Iterator[Sample | Reject]:
    """Yields one item per line of the file at `path`, in order; `name` is the object's name, for messages."""
    window: list[tuple[Line, str | list[int] | Bad]] = []
    size = 0
    for line in read_lines(path, name):
        window.append((Line(line.index, None, line.size_bytes), parse_record(line, reader.record.field)))
        size += line.size_bytes if line.data is not None else 0
        if len(window) >= _WINDOW_LINES or size >= _WINDOW_BYTES:
            yield from _tokenize(window, reader)
            window, size = [], 0
    yield from _tokenize(window, reader)


def _tokenize(window: list[tuple[Line, str | list[int] | Bad]], reader: Reader) -> Iterator[Sample | Reject]:
    texts = [content for _, content in window if isinstance(content, str)]
    encodings = iter(reader.tokenizer.encode_batch_fast(texts, add_special_tokens=True))
    for line, content in window:
        if isinstance(content, Bad):
            yield Reject(line.index, content.reason)
        elif isinstance(content, str):
            yield _accept(line.index, next(encodings).ids, content[:_PREVIEW_CHARS], reader)
        else:
            yield _accept_ids(line.index, content, reader)


def _accept_ids(index: int, ids: list[int], reader: Reader) -> Sample | Reject:
    for position, token in enumerate(ids):
        if not 0 <= token < reader.vocab_size:
            return Reject(
                index,
                f"token id {str(token)[:24]} at position {position} is not in the vocabulary "
                f"(0 to {reader.vocab_size - 1})",
            )
    preview = reader.tokenizer.decode(ids[:_PREVIEW_CHARS], skip_special_tokens=False)[:_PREVIEW_CHARS]
    return _accept(index, ids, preview, reader)


def _accept(index: int, ids: list[int], preview: str, reader: Reader) -> Sample | Reject:
    if not ids:
        return Reject(index, "has no tokens")
    truncated = len(ids) > reader.max_length
    if truncated and reader.over_long == "reject":
        return Reject(
            index,
            f"is {len(ids)} tokens long; the limit is {reader.max_length} "
            "(max_seq_length in run.json, and never more than the model's positions; "
            "over_long: truncate would keep the beginning)",
        )
    return Sample(index, np.asarray(ids[: reader.max_length], dtype=np.int32), preview, truncated)
