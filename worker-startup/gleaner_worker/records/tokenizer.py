"""The tokenizer of a model, which encodes many texts at once on every core."""

import os

from tokenizers import Encoding, Tokenizer

from ..failures import Failure, raise_exits
from .reject_reason import RejectReason


def load_tokenizer(folder: str, model: str) -> Tokenizer:
    """Raises Failure("model")."""
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        raise Failure("model", f"Failed to read the tokenizer of {model}: it has no tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(path)
    except BaseException as error:  # tokenizers raises plain Exception, and panics on some files
        raise_exits(error)
        raise Failure("model", f"Failed to read tokenizer.json of {model}: {str(error)[:300]}") from error
    # tokenizer.json may ask for both; either changes samples silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def find_bos(tokenizer: Tokenizer) -> int | None:
    """The id that begins every text, or None: Llama and Gemma have it, Qwen does not."""
    try:
        bare, full = (tokenizer.encode("a", add_special_tokens=add).ids for add in (False, True))
    except BaseException as error:  # a vocabulary without that letter, or a panic
        raise_exits(error)
        return None
    return full[0] if len(full) > len(bare) and full[1 : 1 + len(bare)] == bare else None


def encode_texts(texts: list[str], tokenizer: Tokenizer) -> list[list[int] | RejectReason]:
    """Encodes with the special tokens that the tokenizer adds, but without a second BOS for a text that begins with it.

    The empty text has no tokens.
    """
    bos_id = find_bos(tokenizer)
    found = [_ids(encoding) for encoding in _encode(texts, tokenizer, True)]
    return [_with_one_bos(ids, bos_id) if text else [] for text, ids in zip(texts, found, strict=True)]


def encode_complete(texts: list[str], tokenizer: Tokenizer) -> list[list[int] | RejectReason]:
    """Encodes texts that hold their special tokens already."""
    return [_ids(encoding) for encoding in _encode(texts, tokenizer, False)]


def _encode(texts: list[str], tokenizer: Tokenizer, add_special_tokens: bool) -> list[Encoding | RejectReason]:
    try:
        return [*tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]
    except BaseException as error:  # for the first text that tokenizers cannot encode; some texts make it panic
        raise_exits(error)
        if len(texts) == 1:
            return [RejectReason(f"cannot be tokenised: {str(error)[:300]}")]
        return [found for text in texts for found in _encode([text], tokenizer, add_special_tokens)]


def _ids(encoding: Encoding | RejectReason) -> list[int] | RejectReason:
    return encoding if isinstance(encoding, RejectReason) else encoding.ids


def _with_one_bos(ids: list[int] | RejectReason, bos_id: int | None) -> list[int] | RejectReason:
    if isinstance(ids, RejectReason) or bos_id is None or ids[:2] != [bos_id, bos_id]:
        return ids
    return ids[1:]
