"""The tokenizer of a model, which encodes many texts at once on every core."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer, processors

from ..failures import Failure, raise_exits
from .bos import Bos
from .reject_reason import RejectReason

_MAX_FILE_BYTES = 256 * 1024 * 1024  # the parser needs a multiple of it in memory


def load_tokenizer(folder: str, model: str) -> Tokenizer:
    """Raises Failure("model")."""
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        raise Failure(
            "model", f"Failed to read the tokenizer of {model}: it has no tokenizer.json; copy the model again"
        )
    if (size := os.path.getsize(path)) > _MAX_FILE_BYTES:
        raise Failure(
            "model",
            f"Failed to read tokenizer.json of {model}: it has {size} bytes, and the limit is {_MAX_FILE_BYTES}; "
            "use a model with a smaller tokenizer",
        )
    try:
        tokenizer = Tokenizer.from_file(path)
    except BaseException as error:  # tokenizers raises plain Exception, and panics on some files
        raise_exits(error)
        raise Failure(
            "model", f"Failed to read tokenizer.json of {model}: {str(error)[:300]}; copy the model again"
        ) from error
    # tokenizer.json may ask for each of these, which change samples silently; dropout does so at random.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    # Trimmed offsets leave a token of blanks without a character, so `tokens: "assistant"` would lose it.
    last: Any = tokenizer.post_processor
    for processor in last if isinstance(last, processors.Sequence) else [last]:
        if getattr(processor, "trim_offsets", False):
            processor.trim_offsets = False
    return tokenizer


def special_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The added tokens that tokenizer.json calls special."""
    return tuple(token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special)


@dataclass(frozen=True)
class Encoded:
    """The tokens of a text."""

    ids: list[int]
    assistant_mask: np.ndarray | None = None  # bool [length], the tokens that the model wrote; None where not asked


def encode_texts(texts: list[str], tokenizer: Tokenizer, bos: Bos) -> list[Encoded | RejectReason]:
    """Encodes with the special tokens that the tokenizer adds, but without a second BOS for a text that begins with it.

    The empty text has no tokens.
    """
    found = _encode(texts, tokenizer, True)
    return [
        _with_bos(_once(encoding, bos), bos) if text else Encoded([])
        for text, encoding in zip(texts, found, strict=True)
    ]


def encode_complete(texts: list[str], tokenizer: Tokenizer, bos: Bos) -> list[Encoded | RejectReason]:
    """Encodes texts that hold their special tokens already."""
    return [_with_bos(_ids(encoding), bos) for encoding in _encode(texts, tokenizer, False)]


def encode_with_mask(
    texts: list[str], spans: list[list[tuple[int, int]]], tokenizer: Tokenizer, bos: Bos
) -> list[Encoded | RejectReason]:
    """Encodes complete texts, with a mask of the tokens that have a character in one of the spans [begin, end)."""
    encodings = _encode(texts, tokenizer, False, with_offsets=True)
    return [
        encoding
        if isinstance(encoding, RejectReason)
        else _with_bos(Encoded(encoding.ids, _mask(encoding.offsets, marked, len(text))), bos)
        for encoding, marked, text in zip(encodings, spans, texts, strict=True)
    ]


def _mask(offsets: list[tuple[int, int]], spans: list[tuple[int, int]], characters: int) -> np.ndarray:
    """bool [tokens]: whether the token has a character in one of the spans."""
    edges = np.zeros(characters + 1, np.int32)
    for bounds, step in zip(np.array(spans, np.int64).reshape(-1, 2).T, (1, -1), strict=True):
        np.add.at(edges, np.minimum(bounds, characters), step)  # a text may be cut, and its spans not
    marked_before = np.append(0, np.cumsum(np.cumsum(edges[:-1]) > 0))  # [characters + 1]
    begins, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    return marked_before[ends] > marked_before[begins]


def _encode(
    texts: list[str], tokenizer: Tokenizer, add_special_tokens: bool, with_offsets: bool = False
) -> list[Encoding | RejectReason]:
    encode = tokenizer.encode_batch if with_offsets else tokenizer.encode_batch_fast
    try:
        return [*encode(texts, add_special_tokens=add_special_tokens)]
    except BaseException as error:  # for the first text that tokenizers cannot encode; some texts make it panic
        raise_exits(error)
        if len(texts) == 1:
            return [RejectReason(f"cannot be tokenised: {str(error)[:300]}")]
        return [found for text in texts for found in _encode([text], tokenizer, add_special_tokens, with_offsets)]


def _ids(encoding: Encoding | RejectReason) -> Encoded | RejectReason:
    return encoding if isinstance(encoding, RejectReason) else Encoded(encoding.ids)


def _once(encoding: Encoding | RejectReason, bos: Bos) -> Encoded | RejectReason:
    found = _ids(encoding)
    if isinstance(found, RejectReason) or not bos.is_added or found.ids[:2] != [bos.token_id] * 2:
        return found
    return Encoded(found.ids[1:])


def _with_bos(found: Encoded | RejectReason, bos: Bos) -> Encoded | RejectReason:
    if isinstance(found, RejectReason):
        return found
    mask = found.assistant_mask
    if bos.when is True and found.ids and found.ids[0] != bos.token_id:
        assert bos.token_id is not None
        return Encoded([bos.token_id, *found.ids], None if mask is None else np.append(False, mask))
    if bos.when is False and bos.token_id is not None and found.ids[:1] == [bos.token_id]:
        return Encoded(found.ids[1:], None if mask is None else mask[1:])
    return found
