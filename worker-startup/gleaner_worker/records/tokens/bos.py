"""BOS, the token at the beginning of a text, as the model's files and the spec (bos) define it."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from ...failures import Failure, raise_exits
from ...spec.spec import Spec
from ..chat.chat import Chat


@dataclass(frozen=True)
class Bos:
    """The BOS of a model, and which texts of the run begin with it."""

    token_id: int | None  # None for a model without BOS
    is_added: bool  # whether tokenizer.json adds BOS: true for Llama and Gemma, false for Qwen
    when: str | bool  # "auto": where tokenizer.json adds BOS; True: every text; False: no text


def find_bos(tokenizer: Tokenizer) -> int | None:
    """The id that tokenizer.json adds before every text, or None."""
    try:
        bare, full = (tokenizer.encode("a", add_special_tokens=add).ids for add in (False, True))
    except BaseException as error:  # a vocabulary without "a", or a panic of tokenizers
        raise_exits(error)
        return None
    begins = range(1, len(full) - len(bare) + 1)
    return full[0] if any(full[begin : begin + len(bare)] == bare for begin in begins) else None


def bos_rule(spec: Spec, tokenizer: Tokenizer, chat: Chat) -> Bos:
    """The BOS of the run. Raises Failure("model") when the spec requires BOS and the model's files name none."""
    added = find_bos(tokenizer)
    token_id = added
    if token_id is None and "bos_token" in chat.tokens:
        token_id = tokenizer.token_to_id(chat.tokens["bos_token"])
    if spec.bos is True and token_id is None:
        raise Failure(
            "model",
            f"Failed to put BOS before texts: tokenizer_config.json of {spec.model} names no bos_token that "
            "tokenizer.json has; set `bos` to auto or false",
        )
    return Bos(token_id, added is not None, spec.bos)


def bos_warning(bos: Bos, chat: Chat, model: str) -> str | None:
    """Describes the disagreement of the model's files about BOS; None where they agree, or the spec decides."""
    if bos.when != "auto" or chat.adds_bos is None or chat.adds_bos == bos.is_added:
        return None
    return (
        f"The files of {model} disagree about BOS: tokenizer_config.json says add_bos_token: "
        f"{str(chat.adds_bos).lower()}, and tokenizer.json adds {'BOS' if bos.is_added else 'no BOS'}. Texts of this "
        f"run begin with{'' if bos.is_added else 'out'} BOS; set `bos` to true or false to decide"
    )
