"""Where a model's files are, in a local folder or in a `gs://` folder copied here once, and what they say of it."""

import hashlib
import json
import os
import re
import shutil

from ..failures import Failure
from ..objects import Bucket, ObjectInfo, file_crc32c
from .config import Qwen2Config, parse_config
from ..records.samples import Reader, make_reader
from ..spec import Spec, resolve_layers

_TEXT_FILES = ("config.json", "tokenizer.json")
_INDEX = "model.safetensors.index.json"


def find_model(model: str, home: str, bucket: Bucket, weights: bool = True) -> str:
    """Returns a local folder with config.json, tokenizer.json and (with `weights`) the safetensors files of `model`.

    Raises Failure("model") when the name is of no known kind, or a file is missing.
    """
    if match := re.fullmatch(r"gs://([^/]+)/(.+?)/*", model):
        folder = _copy(Bucket(bucket.client, match[1], bucket.check), match[2], model, home, weights)
    elif os.path.isdir(model):
        folder = model
    elif model.startswith((".", "/", "~")):
        raise Failure(
            "model",
            f"Failed to find the model {model}: there is no such folder on this machine; "
            "copy it to gs://… and name that",
        )
    else:
        raise Failure(
            "model",
            f"Failed to find the model {model}: models from a hub are not supported yet; "
            "copy the model's folder to gs://… and name that",
        )
    missing = [name for name in _TEXT_FILES if not os.path.exists(os.path.join(folder, name))]
    if missing:
        raise Failure("model", f"Failed to use the model {model}: it has no {' and no '.join(missing)}")
    return folder


def open_reader(spec: Spec, folder: str) -> tuple[Qwen2Config, tuple[int, ...], Reader]:
    """What can be known of a model without its weights."""
    config = parse_config(_read_config(folder, spec.model), spec.model)
    reader = make_reader(os.path.join(folder, "tokenizer.json"), spec, config.vocab_size, config.max_positions)
    return config, resolve_layers(spec, config.num_layers), reader


def _read_config(folder: str, model: str) -> dict:
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except ValueError as error:
        raise Failure("model", f"Failed to read config.json of {model}: {error}") from error
    if not isinstance(config, dict):
        raise Failure("model", f"Failed to read config.json of {model}: it is not a JSON object")
    return config


def fingerprint(folder: str) -> str:
    """Changes when any file that decides the activations does; the same for a folder and its copy in a bucket."""
    names = sorted(name for name in os.listdir(folder) if name in _TEXT_FILES or name.endswith(".safetensors"))
    content = "".join(f"{name} {file_crc32c(os.path.join(folder, name))}\n" for name in names)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _copy(bucket: Bucket, path: str, model: str, home: str, weights: bool) -> str:
    prefix = f"{path}/"
    try:
        wanted = [info for info in bucket.list(prefix) if _is_wanted(info.name.removeprefix(prefix), weights)]
    except FileNotFoundError:
        wanted = []
    if not wanted:
        raise Failure("model", f"Failed to find the model {model}: there is no model folder of that name")
    # A model that is copied anew gets a new folder: half of one and half of another is never read.
    key = hashlib.sha256("".join(f"{info.name} {info.generation}\n" for info in wanted).encode()).hexdigest()[:16]
    folder = os.path.join(home, "models", key)
    if not os.path.isdir(folder):
        unfinished = f"{folder}.{os.getpid()}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished)
        for info in wanted:
            _download(bucket, info, os.path.join(unfinished, info.name.removeprefix(prefix)), model)
        try:
            os.rename(unfinished, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _is_wanted(name: str, weights: bool) -> bool:
    return name in _TEXT_FILES or (weights and "/" not in name and (name == _INDEX or name.endswith(".safetensors")))


def _download(bucket: Bucket, info: ObjectInfo, path: str, model: str) -> None:
    try:
        bucket.download(info.name, path, info.generation)
    except FileNotFoundError as error:
        raise Failure(
            "model",
            f"Failed to copy the model {model}: {info.name} was replaced meanwhile; start the run again",
        ) from error
