"""The files of a model, from a folder, a bucket or a hub; and the config in them.

A hub's files, and a bucket's small files, are copied to this machine once. A bucket's weights stay there: a thread that
loads a layer reads its bytes.
"""

import hashlib
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor

from ..failures import Failure
from ..model_json import read_model_json
from ..spec import Spec, resolve_layers
from ..storage.objects import Bucket, ObjectInfo
from .config import DecoderConfig, parse_config
from .generation_rules import GenerationRules, read_generation_rules
from .hub import Hub, fetch_model, is_hub_id, own_hub
from .identity import CONFIG, INDEX, ModelFiles, choose_files, hash_files, is_model_file, is_weight_file
from .model_cache import Copy, kept_copy, make_room
from .sites import check_sites
from .weight_files import BucketFile, DiskFile, sha256_of

log = logging.getLogger(__name__)

_GS = re.compile(r"gs://([^/]+)/(.+?)/*")
_CONCURRENT_FILES = 16
_MAX_CONFIG_BYTES = 16 * 1024 * 1024


def find_model(
    model: str,
    home: str,
    bucket: Bucket | None,
    *,
    revision: str | None = None,
    hub: Hub | None = None,
    weights: bool = True,
    tokenizer: bool = True,
    generates: bool = False,
) -> ModelFiles:
    """The files of `model`; copied files lie under `home`. Without `weights`, the small files alone. Without
    `tokenizer`, a folder or a bucket may lack tokenizer.json. generates: with generation_config.json.

    `bucket` gives the clients, and the check that may end the reading. Raises Failure with the remedy for an unknown
    kind of name, a model that does not exist, and a model that lacks a file.
    """
    check = bucket.check if bucket else lambda: None
    # A name that a hub may have is never a folder: a job could make one below the folder of the process.
    is_folder, in_bucket = model.startswith((".", "/")) and os.path.isdir(model), _GS.fullmatch(model)
    commit, known = None, {}
    if revision is not None and (is_folder or in_bucket):
        raise Failure(
            "model",
            f"Failed to use revision {revision} of {model}: only models of a hub have revisions; leave `revision` out",
        )
    if in_bucket:
        assert bucket is not None
        named = bucket.named(in_bucket[1])
        return _find_in_bucket(named, in_bucket[2], model, home, weights, tokenizer, generates)
    if is_folder:
        copy = Copy(model, is_kept=False)
    elif model.startswith((".", "/", "~")):
        raise Failure(
            "model",
            f"Failed to find the model {model}: there is no such folder on this machine; "
            "copy it to gs://… and set `model` to that address",
        )
    elif is_hub_id(model):
        copy, commit, known = fetch_model(hub or own_hub(), model, revision, home, weights, check, generates)
    else:
        raise Failure(
            "model",
            f"Failed to find the model {model}: it is no folder of this machine, no gs://BUCKET/FOLDER "
            "and no id on a hub such as Qwen/Qwen2.5-0.5B; set `model` to one of these",
        )
    names = [entry.name for entry in os.scandir(copy.folder) if entry.is_file()]
    names = choose_files(names, copy.folder, model, weights, tokenizer, generates)
    hashes = known | hash_files(copy.folder, [name for name in names if name not in known], model)
    files = {name: hashes[name] for name in names}
    stored = [DiskFile(os.path.join(copy.folder, name)) for name in names if is_weight_file(name)]
    return ModelFiles(model, copy.folder, commit, files, stored, copy.is_kept)


def read_config(spec: Spec, folder: str) -> tuple[DecoderConfig, tuple[int, ...]]:
    """The model's config.json, and the layers of it that the spec asks for. Raises Failure("model")."""
    config = parse_config(_raw_config(spec, folder), spec.model)
    layers = resolve_layers(spec, config.num_layers)
    check_sites(config, layers, spec.sites, spec.top_k, spec.model)
    read_rules(spec, config, folder)
    return config, layers


def read_rules(spec: Spec, config: DecoderConfig, folder: str) -> GenerationRules | None:
    """The rules of the tokens that the run generates; None for a run that generates none. Raises Failure("model")."""
    if not spec.generates:
        return None
    max_length = spec.max_length(config.max_positions)
    return read_generation_rules(folder, spec.model, config, _raw_config(spec, folder), spec.new_tokens, max_length)


def _raw_config(spec: Spec, folder: str) -> dict:
    return read_model_json(folder, CONFIG, spec.model, _MAX_CONFIG_BYTES)


def _find_in_bucket(
    bucket: Bucket, path: str, model: str, home: str, weights: bool, tokenizer: bool, generates: bool
) -> ModelFiles:
    prefix = f"{path}/"
    try:
        listed = {info.name.removeprefix(prefix): info for info in bucket.list(prefix)}
    except FileNotFoundError:
        listed = {}
    if not listed:
        raise Failure(
            "model",
            f"Failed to find the model {model}: the bucket has no object under that name; upload the model there, "
            "or set `model` to its address",
        )
    wanted = [info for name, info in listed.items() if is_model_file(name, weights)]
    # A changed model gets a new folder, so that a copy never mixes two states.
    lines = [f"{bucket.name}/{path}", *(f"{info.name} {info.generation}" for info in wanted)]
    key = "gs--" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

    def fill(folder: str) -> None:
        small = [(info, os.path.join(folder, name)) for name, info in listed.items() if is_model_file(name, False)]
        if weights and INDEX in listed:
            small.append((listed[INDEX], os.path.join(folder, INDEX)))
        make_room(folder, sum(info.size_bytes for info, _ in small), model)
        with ThreadPoolExecutor(_CONCURRENT_FILES) as pool:
            list(pool.map(lambda file: _download(bucket, file[0], file[1], model), small))

    copy = kept_copy(home, key, bucket.check, fill)
    names = choose_files(listed, copy.folder, model, weights, tokenizer, generates)
    hashes = hash_files(copy.folder, [name for name in names if not is_weight_file(name)], model)
    stored = [BucketFile(bucket, listed[name]) for name in names if is_weight_file(name)]
    if stored:
        log.info("Hashing %.1f GB of weights of %s", sum(file.size_bytes for file in stored) / 1e9, model)
        with ThreadPoolExecutor(_CONCURRENT_FILES) as pool:
            hashes |= zip((file.name for file in stored), pool.map(sha256_of, stored), strict=True)
    return ModelFiles(model, copy.folder, None, hashes, stored, copy.is_kept)


def _download(bucket: Bucket, info: ObjectInfo, path: str, model: str) -> None:
    if os.path.exists(path):  # copied by an earlier attempt
        return
    try:
        bucket.download(info.name, f"{path}.part", info.generation)
    except FileNotFoundError as error:
        raise Failure(
            "hub",
            f"Failed to copy the model {model}: {info.name} was replaced during the copy; the next try copies it anew",
        ) from error
    os.rename(f"{path}.part", path)
