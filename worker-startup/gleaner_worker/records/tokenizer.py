"""The tokenizer of a model, which encodes many texts at once on every core."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer, processors

from ..failures import Failure, raise_exits
from .bos import Bos
from .rejected import Rejected

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


def encode_texts(texts: list[str], tokenizer: Tokenizer, bos: Bos) -> list[Encoded | Rejected]:
    """Encodes with the special tokens that the tokenizer adds, but without a second BOS for a text that begins with it.

    The empty text has no tokens.
    """
    encoded = _encode(texts, tokenizer, bos, True)
    return [each if text else Encoded([]) for text, each in zip(texts, encoded, strict=True)]


def encode_complete(
    texts: list[str], tokenizer: Tokenizer, bos: Bos, spans: list[list[tuple[int, int]]] | None = None
) -> list[Encoded | Rejected]:
    """Encodes texts that hold their special tokens already.

    spans: of each text, the parts [begin, end) that the model wrote. Each result then has a mask of the tokens with a
    character in one of them.
    """
    return _encode(texts, tokenizer, bos, False, spans)


def _mask(offsets: list[tuple[int, int]], spans: list[tuple[int, int]], characters: int) -> np.ndarray:
    """bool [tokens]: whether the token has a character in one of the spans."""
    edges = np.zeros(characters + 1, np.int32)
    for bounds, step in zip(np.array(spans, np.int64).reshape(-1, 2).T, (1, -1), strict=True):
        np.add.at(edges, np.minimum(bounds, characters), step)  # a text may be cut, and its spans not
    marked_before = np.append(0, np.cumsum(np.cumsum(edges[:-1]) > 0))  # [characters + 1]
    begins, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    return marked_before[ends] > marked_before[begins]


def _encode(
    texts: list[str],
    tokenizer: Tokenizer,
    bos: Bos,
    add_special_tokens: bool,
    spans: list[list[tuple[int, int]]] | None = None,
) -> list[Encoded | Rejected]:
    encode = tokenizer.encode_batch_fast if spans is None else tokenizer.encode_batch
    try:
        encodings = encode(texts, add_special_tokens=add_special_tokens)
    except BaseException as error:  # for the first text that tokenizers cannot encode; some texts make it panic
        raise_exits(error)
        if len(texts) == 1:
            return [Rejected(f"cannot be tokenised: {str(error)[:300]}")]
        each_spans = [None] * len(texts) if spans is None else [[marked] for marked in spans]
        pairs = zip(texts, each_spans, strict=True)
        return [_encode([text], tokenizer, bos, add_special_tokens, marked)[0] for text, marked in pairs]
    encoded: list[Encoded | Rejected] = []
    for number, encoding in enumerate(encodings):
        mask = None if spans is None else _mask(encoding.offsets, spans[number], len(texts[number]))
        is_doubled = add_special_tokens and bos.is_added and encoding.ids[:2] == [bos.token_id] * 2
        encoded.append(_with_bos(encoding.ids[1:] if is_doubled else encoding.ids, mask, bos))
    return encoded


def _with_bos(ids: list[int], mask: np.ndarray | None, bos: Bos) -> Encoded:
    """The tokens with or without BOS at their beginning, as the spec asks."""
    if bos.when is True and ids and ids[0] != bos.token_id:
        assert bos.token_id is not None
        return Encoded([bos.token_id, *ids], None if mask is None else np.append(False, mask))
    if bos.when is False and bos.token_id is not None and ids[:1] == [bos.token_id]:
        return Encoded(ids[1:], None if mask is None else mask[1:])
    return Encoded(ids, mask)
