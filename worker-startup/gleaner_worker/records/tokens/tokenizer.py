"""The tokenizer of a model, which encodes many texts at once on every core."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, processors

from gleaner_reader.format.added_tokens import ADDED, CONFIG, SPECIAL, add_tokens

from ...failures import Failure, raise_exits
from ...model_json import read_model_json
from ..lines.rejected import Rejected
from ..lines.select import Marks
from .bos import Bos
from .spans import Span, mark_tokens

TextSpans = Sequence[Sequence[Span]]  # of a text: its spans for each source

_MAX_FILE_BYTES = 256 * 1024 * 1024  # the parser needs a multiple of it in memory
_MAX_OTHER_BYTES = 64 * 1024 * 1024


def load_tokenizer(folder: str, model: str) -> Tokenizer:
    """The tokenizer of tokenizer.json, with the tokens of the files beside it. Raises Failure("model")."""
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
    others = {name: read_model_json(folder, name, model, _MAX_OTHER_BYTES) for name in (CONFIG, SPECIAL, ADDED)}
    try:
        tokenizer = Tokenizer.from_file(path)
        add_tokens(tokenizer, {name: content for name, content in others.items() if content})
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
    # Trimmed offsets leave a token of blanks without a character, so spans would lose it.
    last: Any = tokenizer.post_processor
    for processor in last if isinstance(last, processors.Sequence) else [last]:
        if getattr(processor, "trim_offsets", False):
            processor.trim_offsets = False
    return tokenizer


def special_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The added tokens that are special."""
    return tuple(token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special)


@dataclass(slots=True)
class Encoded:
    """The tokens of a text."""

    ids: list[int]
    marks: Marks | None = None  # None where a run looks for no spans


def encode_texts(
    texts: list[str], tokenizer: Tokenizer, bos: Bos, spans: Sequence[TextSpans] | None = None
) -> list[Encoded | Rejected]:
    """Encodes with the special tokens that the tokenizer adds, but without a second BOS for a text that begins with it.

    The empty text has no tokens. spans: of each text, those of each source; each result then has marks.
    """
    encoded = _encode(texts, tokenizer, bos, True, spans)
    return [each if text else Encoded([]) for text, each in zip(texts, encoded, strict=True)]


def encode_complete(
    texts: list[str], tokenizer: Tokenizer, bos: Bos, spans: Sequence[TextSpans] | None = None
) -> list[Encoded | Rejected]:
    """Encodes texts that hold their special tokens already."""
    return _encode(texts, tokenizer, bos, False, spans)


def encode_ids(ids: list[int], spans: TextSpans | None = None) -> Encoded:
    """Token ids of a record, whose spans count tokens."""
    return Encoded(ids, mark_tokens([(n, n + 1) for n in range(len(ids))], spans) if spans else None)


def _encode(
    texts: list[str], tokenizer: Tokenizer, bos: Bos, add_special_tokens: bool, spans: Sequence[TextSpans] | None = None
) -> list[Encoded | Rejected]:
    encode = tokenizer.encode_batch_fast if spans is None else tokenizer.encode_batch
    try:
        encodings = encode(texts, add_special_tokens=add_special_tokens)
    except BaseException as error:  # for the first text that tokenizers cannot encode; some texts make it panic
        raise_exits(error)
        if len(texts) == 1:
            return [Rejected(f"cannot be tokenised: {str(error)[:300]}")]
        each_spans = [None] * len(texts) if spans is None else [[of_text] for of_text in spans]
        pairs = zip(texts, each_spans, strict=True)
        return [_encode([text], tokenizer, bos, add_special_tokens, of_text)[0] for text, of_text in pairs]
    encoded: list[Encoded | Rejected] = []
    for number, encoding in enumerate(encodings):
        ids = encoding.ids  # a new list for each access
        marks = None if spans is None else mark_tokens(encoding.offsets, spans[number])
        is_doubled = add_special_tokens and bos.is_added and ids[:2] == [bos.token_id] * 2
        whole = Encoded(ids, marks)
        encoded.append(_with_bos(_without_first(whole) if is_doubled else whole, bos))
    return encoded


def _with_bos(encoded: Encoded, bos: Bos) -> Encoded:
    """The tokens with or without BOS at their beginning, as the spec asks."""
    ids = encoded.ids
    if bos.when is True and ids and ids[0] != bos.token_id:
        assert bos.token_id is not None
        return Encoded([bos.token_id, *ids], encoded.marks and encoded.marks.shifted(1))
    if bos.when is False and bos.token_id is not None and ids[:1] == [bos.token_id]:
        return _without_first(encoded)
    return encoded


def _without_first(encoded: Encoded) -> Encoded:
    return Encoded(encoded.ids[1:], encoded.marks and encoded.marks.shifted(-1))
