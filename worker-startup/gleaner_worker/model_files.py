"""The files of a model's folder: each name that transformers 5.24 looks for in a text model, and its use here.

Commands, functions and mirrors have the same table in shared/contracts/spec/model-rules.json (see config_rules.py), and
test/reference/test_model_files.py asks transformers which names it looks for.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
INDEX = "model.safetensors.index.json"
ONE_FILE = "model.safetensors"
TEMPLATES = "additional_chat_templates"
_WEIGHTS = r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors"


@dataclass(frozen=True)
class FileRule:
    """What Gleaner does with the files of one name."""

    pattern: str  # of the whole name, below the folder of the model
    use: str  # "read"; "ignored", because it changes nothing here; or "refused"
    why: str  # for "refused", with what to do


FILE_RULES = (
    FileRule(r"config\.json", "read", "the sizes and the computation of the model"),
    FileRule(r"generation_config\.json", "read", "the rules of generated tokens, in runs that generate some"),
    FileRule(r"tokenizer\.json", "read", "the tokenizer"),
    FileRule(
        r"(tokenizer_config|special_tokens_map|added_tokens)\.json", "read", "tokens beside those of tokenizer.json"
    ),
    FileRule(r"chat_template\.(jinja|json)", "read", "the chat template"),
    FileRule(rf"{TEMPLATES}/[A-Za-z0-9][A-Za-z0-9._-]{{0,100}}\.jinja", "read", "chat templates with a name"),
    FileRule(r"model\.safetensors(\.index\.json)?", "read", "the weights"),
    FileRule(
        rf"{TEMPLATES}/[^/]+\.jinja",
        "refused",
        "the name of a chat template has letters, digits, dots, hyphens and underscores: rename it",
    ),
    FileRule(
        r"adapter_config\.json",
        "refused",
        "it makes the folder an adapter of another model: merge the adapter into that model, and save the result",
    ),
    FileRule(
        r"tokenizer\.\d[\w.]*\.json",
        "refused",
        "it is a tokenizer for some versions of transformers: keep the one that you want as tokenizer.json",
    ),
    FileRule(r"consolidated[\w.-]*\.safetensors", "ignored", "transformers never reads it"),
    FileRule(
        r"[\w.-]+\.(bin|pt|pth|ckpt)(\.index\.json)?", "ignored", "it is a pickle, and the safetensors files are read"
    ),
    FileRule(
        r"tokenizer\.model[\w.-]*|(spiece|spm|tiktoken|sentencepiece\.bpe)\.model|(vocab|tekken)\.json|(vocab|merges)\.txt",
        "ignored",
        "tokenizer.json has its content",
    ),
    FileRule(r"(\w*preprocessor|processor|audio_tokenizer)_config\.json", "ignored", "it is for images and sound"),
    FileRule(r"[\w.-]+\.py", "ignored", "no code of a model is run"),
    FileRule(r"modelcard\.json", "ignored", "it describes the model"),
    FileRule(_WEIGHTS, "read", "weights, where the index names them"),
)


@cache
def rule_of(name: str) -> FileRule | None:
    """The rule of a file, by its name below the model's folder; None for one that transformers never looks for."""
    return next((rule for rule in FILE_RULES if re.fullmatch(rule.pattern, name)), None)


def is_weight_file(name: str) -> bool:
    """Whether a file of this name can hold weights."""
    return re.fullmatch(_WEIGHTS, name) is not None


def is_small_file(name: str) -> bool:
    """Whether a file of this name is read beside the weights. No pickle and no code is part of a model."""
    return _use_of(name) == "read" and not is_weight_file(name) and name != INDEX


def _use_of(name: str) -> str | None:
    rule = rule_of(name)
    return rule.use if rule else None


def refused_files(names: Collection[str]) -> list[str]:
    """A problem for each file that Gleaner does not follow, and for two files with the same content of a model."""
    problems = []
    for name in sorted(names):
        if (rule := rule_of(name)) and rule.use == "refused":
            problems.append(f"it has {name}, which is not supported: {rule.why}")
    others = [name for name in names if is_weight_file(name) and name != ONE_FILE and _use_of(name) == "read"]
    if ONE_FILE in names and INDEX in names and others:
        problems.append(
            f"it has {ONE_FILE} and {INDEX} with {min(others)}, which are two sources of its weights, and transformers "
            f"reads {ONE_FILE} alone: delete the ones that are not the model's"
        )
    default = f"{TEMPLATES}/default.jinja"
    if default in names and "chat_template.jinja" in names:
        problems.append(f"it has chat_template.jinja and {default}, and both are the default chat template: delete one")
    return problems


def names_in(folder: str) -> list[str]:
    """The names of the files of a model's folder on this machine, with those of its folder of chat templates."""
    found = []
    for below in ("", f"{TEMPLATES}/"):
        place = os.path.join(folder, below)
        found += [below + entry.name for entry in os.scandir(place) if entry.is_file()] if os.path.isdir(place) else []
    return found
