"""The files of a model, from a folder, a bucket or a hub; and the config in them.

A hub's files, and a bucket's small files, are copied to this machine once. A bucket's weights stay there: a thread that
loads a layer reads its bytes.
"""

import os
import re
from dataclasses import asdict, replace

from ...architecture.config import DecoderConfig
from ...failures import Failure
from ...limited.process import call
from ...limited.values import from_json
from ...model_files import INDEX, is_small_file, is_weight_file, names_in
from ...spec.spec import Spec
from ...storage.objects import Bucket
from .generation_rules import GenerationRules
from .hub import Hub, fetch_model, is_hub_id, own_hub
from .identity import READ_FILES, Identity, ModelFiles, choose_files
from .model_cache import kept_objects
from .reduction_files import find_reduction_files, naming
from .weight_files import BucketFile, DiskFile, WeightFile, hash_files

_GS = re.compile(r"gs://([^/]+)/(.+?)/*")


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
    # A name that a hub may have is never a folder: a job could make one below the folder of the process.
    is_folder, in_bucket = model.startswith((".", "/")) and os.path.isdir(model), _GS.fullmatch(model)
    if revision is not None and (is_folder or in_bucket):
        raise Failure(
            "model",
            f"Failed to use revision {revision} of {model}: only models of a hub have revisions; leave `revision` out",
        )
    check = bucket.check if bucket else lambda: None
    stored: dict[str, BucketFile] = {}
    folder, is_kept, commit, digests = model, False, None, {}
    if in_bucket:
        assert bucket is not None
        stored = _list_model(bucket.named(in_bucket[1]), f"{in_bucket[2]}/", model)
        folder, is_kept = _copy_small_files(stored, home, weights, bucket)
    elif not is_folder and is_hub_id(model):
        folder, is_kept, commit, digests = fetch_model(
            hub or own_hub(), model, revision, home, weights, check, generates
        )
    elif not is_folder:
        raise Failure(
            "model",
            f"Failed to find the model {model}: it is no folder of this machine, no gs://BUCKET/FOLDER "
            "and no id on a hub such as Qwen/Qwen2.5-0.5B; set `model` to one of these",
        )
    files: dict[str, WeightFile] = {**stored}
    for name in names_in(folder):
        if not (in_bucket and is_weight_file(name)):  # weights of a bucket stay there
            files[name] = DiskFile(os.path.join(folder, name))
    names = choose_files(files, folder, model, weights, tokenizer, generates)
    digests |= hash_files({name: files[name] for name in names if name not in digests}, model)
    used = [files[name] for name in names if is_weight_file(name)]
    return ModelFiles(model, commit, {name: digests[name] for name in names}, {}, folder, used, is_kept)


def find_spec_files(
    spec: Spec,
    home: str,
    bucket: Bucket | None,
    *,
    lock: Identity | None = None,
    hub: Hub | None = None,
    weights: bool = True,
    tokenizer: bool = True,
) -> ModelFiles:
    """`find_model` for the model of a spec, with the files of its reductions. lock: of the run, whose commits count."""
    revision = lock.revision if lock else spec.revision
    found = find_model(
        spec.model,
        home,
        bucket,
        revision=revision,
        hub=hub,
        weights=weights,
        tokenizer=tokenizer,
        generates=spec.generates,
    )
    if not spec.reductions:
        return found
    config, _ = read_config(spec, found.folder)
    commits, each = lock.reductions if lock else {}, []
    for entry in spec.reductions:
        with naming(entry):
            commit = commits.get(entry.name)
            in_use = [found.folder, *(files.folder for files in each)]
            each.append(find_reduction_files(spec, entry, config, home, bucket, hub, commit, weights, in_use))
    digests = {f"{files.entry.name}/{name}": digest for files in each for name, digest in files.digests.items()}
    commits = {files.entry.name: files.revision for files in each}
    return replace(found, files=found.files | digests, reductions=commits, reduction_files=each)


def read_config(spec: Spec, folder: str) -> tuple[DecoderConfig, tuple[int, ...]]:
    """The model's config.json, and the layers of it that the spec asks for. Raises Failure("model")."""
    found = call(f"{READ_FILES}:config_of", {"folder": folder, "spec": asdict(spec)})
    config = from_json(DecoderConfig, found["config"])
    read_rules(spec, config, folder)
    return config, tuple(found["layers"])


def read_rules(spec: Spec, config: DecoderConfig, folder: str) -> GenerationRules | None:
    """The rules of the tokens that the run generates; None for a run that generates none. Raises Failure("model")."""
    if not spec.generates:
        return None
    facts = {"folder": folder, "spec": asdict(spec), "config": asdict(config)}
    return from_json(GenerationRules, call(f"{READ_FILES}:rules_of", facts))


def _list_model(bucket: Bucket, prefix: str, model: str) -> dict[str, BucketFile]:
    """Every object of the folder, by its name in it."""
    found = {info.name.removeprefix(prefix): BucketFile(bucket, info) for info in bucket.list(prefix)}
    if not found:
        raise Failure(
            "model",
            f"Failed to find the model {model}: the bucket has no object under that name; upload the model there, "
            "or set `model` to its address",
        )
    return found


def _copy_small_files(stored: dict[str, BucketFile], home: str, weights: bool, bucket: Bucket) -> tuple[str, bool]:
    small = {name: file for name, file in stored.items() if is_small_file(name) or (weights and name == INDEX)}

    return kept_objects(home, small, bucket.check)
