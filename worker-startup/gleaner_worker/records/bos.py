"""BOS, the token at the beginning of a text: by the model's files, and by the spec (bos)."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from ..failures import Failure, raise_exits
from ..spec import Spec
from .chat import Chat


@dataclass(frozen=True)
class Bos:
    token_id: int | None  # None for a model without BOS
    is_added: bool  # by tokenizer.json: Llama and Gemma have it, Qwen does not
    when: str | bool  # "auto": where tokenizer.json adds it; True, False: at every text, at none


def find_bos(tokenizer: Tokenizer) -> int | None:
    """The id that tokenizer.json puts before every text, or None."""
    try:
        bare, full = (tokenizer.encode("a", add_special_tokens=add).ids for add in (False, True))
    except BaseException as error:  # a vocabulary without that letter, or a panic
        raise_exits(error)
        return None
    return full[0] if len(full) > len(bare) and full[1 : 1 + len(bare)] == bare else None


def bos_rule(spec: Spec, tokenizer: Tokenizer, chat: Chat) -> Bos:
    """Raises Failure("model") when the spec asks for a BOS that the model does not name."""
    added = find_bos(tokenizer)
    token_id = added
    if token_id is None and "bos_token" in chat.tokens:
        token_id = tokenizer.token_to_id(chat.tokens["bos_token"])
    if spec.bos is True and token_id is None:
        raise Failure(
            "model",
            f"Failed to put BOS before texts: tokenizer_config.json of {spec.model} names no bos_token that "
            "tokenizer.json has; set `bos` in run.json to auto or false",
        )
    return Bos(token_id, added is not None, spec.bos)


def bos_warning(bos: Bos, chat: Chat, model: str) -> str | None:
    """Describes the disagreement of the model's files about BOS; None where they agree, or `bos` decides."""
    if bos.when != "auto" or chat.adds_bos is None or chat.adds_bos == bos.is_added:
        return None
    return (
        f"The files of {model} disagree about BOS: tokenizer_config.json says add_bos_token: "
        f"{str(chat.adds_bos).lower()}, and tokenizer.json adds {'one' if bos.is_added else 'none'}. Texts of this run "
        f"begin with{'' if bos.is_added else 'out'} BOS; set `bos` in run.json to true or false to decide"
    )
