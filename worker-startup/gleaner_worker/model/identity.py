"""The files that a model is made of, and the hashes that show whether two models are the same."""

import hashlib
import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..failures import Failure
from ..model_json import read_model_json, unreadable
from .weight_files import WeightFile

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
INDEX = "model.safetensors.index.json"
ONE_FILE = "model.safetensors"
_SMALL = (
    CONFIG,
    TOKENIZER,
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
)
_WEIGHTS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")
_PICKLED = re.compile(r".*\.(?:bin|pt|pth|ckpt)(?:\.index\.json)?")
_PICKLED_MODEL = re.compile(r"(?:pytorch_model|consolidated)[^/]*\.(?:bin|pt|pth)(?:\.index\.json)?")
_OLD_TOKENIZERS = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
_MAX_INDEX_BYTES = 64 << 20


@dataclass(frozen=True)
class ModelFiles:
    """A model that this machine can read. `files`: the sha256 of each file that the results depend on, by name."""

    name: str  # as in the spec
    folder: str  # of its small files
    revision: str | None  # the commit of a model from the hub
    files: dict[str, str]
    weights: Sequence[WeightFile]
    is_kept: bool = False  # a copy of an earlier request, which the disk may have damaged

    @property
    def weights_sha256(self) -> str | None:
        """The sha256 of the lines "NAME SHA256" of the safetensors files, sorted by name; None without weights."""
        return _sha256_of_lines(self.files, [name for name in self.files if is_weight_file(name)])

    @property
    def tokenizer_sha256(self) -> str:
        return self.files[TOKENIZER]

    @property
    def fingerprint(self) -> str | None:
        """16 hex digits over all files: the same for a folder, its copy in a bucket, and the hub that it came from."""
        digest = _sha256_of_lines(self.files, list(self.files)) if self.weights_sha256 else None
        return digest and digest[:16]


def is_weight_file(name: str) -> bool:
    """Whether a file of this name can hold weights."""
    return _WEIGHTS.fullmatch(name) is not None


def is_model_file(name: str, weights: bool) -> bool:
    """Whether a file of this name can be part of a model. Other files are never downloaded: no pickles, no code."""
    return name in (*_SMALL, GENERATION) or (weights and (name == INDEX or is_weight_file(name)))


def choose_files(
    names: Collection[str], folder: str, model: str, weights: bool, tokenizer: bool = True, generates: bool = False
) -> list[str]:
    """The files of `model` that are used, among `names`, in order.

    generates: with the file that says how the model generates tokens. Other runs never depended on it.

    With `weights` and an index among the names, `folder` must hold the index, which lists the files of weights. Raises
    Failure("model") with everything that is missing and the remedy. Without `tokenizer`, it may be missing.
    """
    problems = [] if CONFIG in names else [f"it has no {CONFIG}"]
    if tokenizer and TOKENIZER not in names:
        problems.append(f"it has no {TOKENIZER}{_how_to_convert(names, model)}")
    chosen = [name for name in (*_SMALL, *([GENERATION] if generates else [])) if name in names]
    if weights and INDEX in names:
        listed = _files_of_index(folder, model)
        absent = [name for name in listed if name not in names]
        problems += [f"it has no {name}, which {INDEX} names" for name in absent]
        chosen += [INDEX, *listed]
    elif weights and ONE_FILE in names:
        chosen.append(ONE_FILE)
    elif weights or any(map(_PICKLED_MODEL.fullmatch, names)) and not any(map(is_weight_file, names)):
        problems.append(_no_weights(names, model))
    if problems:
        raise Failure("model", f"Failed to use the model {model}: {'; '.join(problems)}")
    return sorted(chosen)


def hash_files(folder: str, names: Collection[str], model: str) -> dict[str, str]:
    """The sha256 of each file, as hex; several files are read at once. Raises Failure("model")."""

    def sha256(name: str) -> str:
        with open(os.path.join(folder, name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    try:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            return dict(zip(names, pool.map(sha256, names), strict=True))
    except OSError as error:
        raise Failure("model", f"Failed to read the model {model}: {error}; copy the model again") from error


def _how_to_convert(names: Collection[str], model: str) -> str:
    old = next((name for name in _OLD_TOKENIZERS if name in names), None)
    if not old:
        return f": put the tokenizer's own {TOKENIZER} beside {CONFIG}"
    return (
        f", only {old}: make it once with transformers, AutoTokenizer.from_pretrained({model!r})"
        f".save_pretrained(FOLDER), and put {TOKENIZER} of that folder beside {CONFIG}"
    )


def _no_weights(names: Collection[str], model: str) -> str:
    if pickled := sorted(name for name in names if _PICKLED.fullmatch(name)):
        return (
            f"it has pickled weights only ({pickled[0]}), which are never read, because a pickle can run code: "
            "save them as safetensors with transformers, "
            f"AutoModelForCausalLM.from_pretrained({model!r}).save_pretrained(FOLDER)"
        )
    other = sorted(name for name in names if _WEIGHTS.fullmatch(name))
    missing = f" that lists {other[0]}; put the index" if other else "; put the safetensors files"
    return f"it has no {ONE_FILE} and no {INDEX}{missing} beside {CONFIG}"


def _files_of_index(folder: str, model: str) -> list[str]:
    """The files of weights that the index in `folder` lists, all in that folder. Raises Failure("model")."""
    index = read_model_json(folder, INDEX, model, _MAX_INDEX_BYTES)
    try:
        listed = set(index["weight_map"].values())
        if bad := [name for name in listed if not isinstance(name, str) or not _WEIGHTS.fullmatch(name)]:
            raise ValueError(f"{bad[0]!r:.200} is no name of a safetensors file")
        if not listed:
            raise ValueError("it names no file")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(INDEX, model, "it has no weight_map" if isinstance(error, KeyError) else error) from error
    return sorted(listed)


def _sha256_of_lines(files: dict[str, str], names: list[str]) -> str | None:
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(names))
    return hashlib.sha256(lines.encode()).hexdigest() if lines else None
