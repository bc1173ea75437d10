"""The tokenizer of a model: tokenizer.json, and the files beside it that add tokens."""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import MissingPackage
from .files import open_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_TOKENIZER_BYTES = 1 << 28
_TOKENIZER = "tokenizer.json"
_FILES = (_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def open_tokenizer(
    where: str, revision: str | None = None, sha256: str | None = None, digests: Mapping[str, str] | None = None
) -> "Tokenizer":
    """The tokenizer of a model. The files beside tokenizer.json add their tokens, as in the run.

    Args:
        where: a tokenizer.json, a folder or gs:// prefix with one, or a model of the hub.
        revision: of a model of the hub: a branch, a tag or a commit.
        sha256: of the tokenizer.json that is wanted; None for any.
        digests: the SHA-256 of each file of the model by name, as the run recorded them; None for any.

    Raises:
        OSError: there is no such file.
        ValueError: the file is no tokenizer, or another one.
        MissingPackage: tokenizers or huggingface_hub is not installed.

    >>> open_tokenizer("my-model").decode([1, 2])
    't1 t2'
    """
    try:
        from tokenizers import Tokenizer

        from .added_tokens import add_tokens
    except ImportError:
        raise MissingPackage("read a tokenizer", "tokenizers") from None
    asked = {_TOKENIZER: sha256} if digests is None else {name: digests.get(name) for name in _FILES}
    files = _files_of_tokenizer(where, revision)
    for name, digest in asked.items():
        if digest is not None and (actual := hashlib.sha256(files.get(name, b"")).hexdigest()) != digest:
            raise ValueError(f"The {name} of {where} has SHA-256 {actual}, and the run was made with {digest}")
    others = [name for name in files if name != _TOKENIZER and (digests is None or name in digests)]
    try:
        tokenizer = Tokenizer.from_str(files[_TOKENIZER].decode())
        add_tokens(tokenizer, {name: json.loads(files[name]) for name in others})
    except Exception as error:  # tokenizers raises Exception itself
        raise ValueError(f"Failed to read the {_TOKENIZER} of {where}: {str(error)[:200]}") from error
    return tokenizer


def _files_of_tokenizer(where: str, revision: str | None) -> dict[str, bytes]:
    """The content of tokenizer.json, and of the files beside it that have tokens."""
    if os.path.isfile(where):
        folder, first = os.path.split(os.path.abspath(where))
    elif where.startswith("gs://") or os.path.isdir(where):
        folder, first = where, _TOKENIZER
    else:
        folder, first = _from_hub(where, revision)
    there, found = open_folder(folder).files(), {}
    for name in _FILES:
        file = there.get(first if name == _TOKENIZER else name)
        if file is None and name == _TOKENIZER:
            raise FileNotFoundError(f"{where} has no {_TOKENIZER}")
        if file is None:
            continue
        if file.size > _MAX_TOKENIZER_BYTES:
            raise ValueError(f"{file.url} has {file.size} bytes; a tokenizer has at most {_MAX_TOKENIZER_BYTES}")
        found[name] = bytes(file.read(0, file.size))
    return found


def _from_hub(model: str, revision: str | None) -> tuple[str, str]:
    """The folder with the files of the tokenizer of a hub's model, and the name of its tokenizer.json."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError:
        raise MissingPackage(f"download the tokenizer of {model}", "huggingface_hub") from None
    path = hf_hub_download(model, _TOKENIZER, revision=revision)
    for name in _FILES[1:]:
        with contextlib.suppress(EntryNotFoundError):
            hf_hub_download(model, name, revision=revision)
    return os.path.split(path)
