"""The tokens that the files beside tokenizer.json add to it.

Source: transformers 5.24, `_from_pretrained` of tokenization_utils_base.py and `TokenizersBackend.__init__` of
tokenization_utils_tokenizers.py. A new token gets the next free id, whatever id the files state, as it does there.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

CONFIG = "tokenizer_config.json"
SPECIAL = "special_tokens_map.json"
ADDED = "added_tokens.json"
_EXTRA, _OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def add_tokens(tokenizer: Tokenizer, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds the tokens of `files`, JSON objects by the names CONFIG, SPECIAL and ADDED, to the tokenizer of
    tokenizer.json. Raises ValueError naming the files if their tokens cannot be read."""
    try:
        _add_tokens(tokenizer, files)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"the tokens of {' and '.join(files)} cannot be read: {str(error)[:200]}") from error


def _add_tokens(tokenizer: Tokenizer, files: Mapping[str, Mapping[str, Any]]) -> None:
    settings = dict(files.get(CONFIG, {}))
    if not settings.get(_EXTRA) and _OLD_EXTRA in settings:
        settings[_EXTRA] = settings.pop(_OLD_EXTRA)
    own = _named_further(settings)
    there = tokenizer.get_added_tokens_decoder()
    if "added_tokens_decoder" in settings:
        stored = {int(n): _token(each) for n, each in settings["added_tokens_decoder"].items()}
        known = {repr(token) for token in there.values()}
        new = [token for _, token in sorted(stored.items()) if repr(token) not in known]
        by_text = {token.content: token for token in stored.values()}
    else:  # only then transformers reads the two older files
        special_map = dict(files.get(SPECIAL, {}))
        merged = [*(settings.get(_EXTRA) or []), *(special_map.pop(_EXTRA, None) or [])]
        settings |= special_map | ({_EXTRA: merged} if merged else {})
        special = {value for value in [*map(settings.get, NAMED), *merged] if isinstance(value, str)}
        special |= {_text(special_map.get(name)) for name in NAMED}
        stored = {int(n): _plain(text, special) for text, n in files.get(ADDED, {}).items()}
        new = [token for n, token in sorted(stored.items()) if n not in there]
        by_text = {token.content: token for token in [*stored.values(), *there.values()]}
    named = [by_text.get(_text(settings.get(name)) or "", settings.get(name)) for name in NAMED]
    named += [*own.values(), *_named_further(settings).values()]
    extra = settings.get(_EXTRA, settings.get(_OLD_EXTRA)) or []
    taken = {token.content for token in [*there.values(), *new]}
    further: dict[tuple[bool, str], AddedToken] = {}  # a text and a token of the same content are two
    for value in [*filter(None, named), *extra]:
        token = _special(value)
        if token.content not in taken:
            further.setdefault((isinstance(value, str), repr(token)), token)
    texts = set(map(_text, named)) | {token.content for token in named if isinstance(token, AddedToken)}
    for token in (tokens := [*new, *further.values()]):
        token.special = token.special or token.content in texts
    tokenizer.add_tokens(tokens)
    if settings.get("split_special_tokens") is True:
        tokenizer.encode_special_tokens = True


def _token(value: Any) -> AddedToken:
    return AddedToken(**{key: each for key, each in value.items() if key != "__type"})


def _plain(text: str, special: set) -> AddedToken:
    return AddedToken(text, normalized=text not in special, special=text in special)


def _special(value: Any) -> AddedToken:
    if isinstance(value, str):
        return AddedToken(value, special=True)
    return value if isinstance(value, AddedToken) else _token(value)


def named_tokens(files: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{name: text} of the special tokens, as chat templates see them: `bos_token`, and names of the model's own."""
    settings = dict(files.get(CONFIG, {}))
    own = _named_further(settings)
    if "added_tokens_decoder" not in settings:
        settings |= {key: value for key, value in files.get(SPECIAL, {}).items() if value}
        own |= _named_further(settings)
    named = {name: settings[name] for name in NAMED if settings.get(name)}
    return {name: text for name, value in (named | own).items() if (text := _text(value))}


def _named_further(settings: dict[str, Any]) -> dict[str, Any]:
    """Takes the special tokens with a name of the model's own, such as image_token, out of the settings."""
    names = [key for key in settings if key.endswith("_token") and key not in NAMED and _text(settings[key])]
    found = {name: settings.pop(name) for name in names}
    found |= settings.pop(_EXTRA) if isinstance(settings.get(_EXTRA), dict) else {}
    return found or settings.get("model_specific_special_tokens") or {}


def _text(value: Any) -> str | None:
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) and content else None
