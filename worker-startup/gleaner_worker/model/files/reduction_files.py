"""The files of an entry of `features` or `project`: named files alone, because a repository may have thousands."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from ...architecture.config import DecoderConfig
from ...architecture.saes import LAYOUTS, layout_of
from ...failures import Failure
from ...spec.spec import ReductionSpec, Spec, resolve_layers
from ...storage.objects import Bucket
from .download import Session
from .hub import Hub, hub_folder, is_hub_id, own_hub
from .identity import Place, ReductionFiles
from .model_cache import kept_copy, kept_objects, make_room
from .weight_files import BucketFile, DiskFile, HubFile, WeightFile, hash_files

_GS = re.compile(r"gs://([^/]+)(?:/(.*))?")
_PLAIN = re.compile(r"[\w@+-][\w.@+-]*(?:/[\w@+-][\w.@+-]*)*", re.ASCII)
_TENSORS = ".safetensors"
_MOST_LISTED = 20


@contextmanager
def naming(entry: ReductionSpec, where: str = "") -> Iterator[None]:
    """Raises Failure("model") that names the entry in place of a ValueError or an OSError."""
    try:
        yield
    except (OSError, ValueError) as error:
        remedy = "; copy it again" if where else ""
        raise Failure("model", f"Failed to use {entry.name} ({entry.weights}): {where}{error}{remedy}") from error


class _Source(NamedTuple):
    """A place with files. take: makes the configs and the tensors readable; returns the folder of the configs."""

    has: Callable[[str], bool]
    take: Callable[[list[str], list[str]], tuple[str, bool, dict[str, WeightFile]]]
    revision: str | None = None


def find_reduction_files(
    spec: Spec,
    entry: ReductionSpec,
    config: DecoderConfig,
    home: str,
    bucket: Bucket | None,
    hub: Hub | None,
    revision: str | None,
    weights: bool,
    in_use: Sequence[str] = (),
) -> ReductionFiles:
    """The files of `entry`, at the commit `revision` where a run has one already. Without `weights`, tensors of a hub
    stay there. in_use: folders that stay on the disk.

    Raises ValueError with the remedy, and the errors of the bucket and the hub.
    """
    root, path, is_sae = entry.weights.rstrip("/"), entry.path, entry in spec.features
    if root.endswith(_TENSORS):
        root, _, path = root.rpartition("/")
    layers = resolve_layers(spec, config.num_layers, entry)
    if is_sae and len(layers) > 1 and "{layer}" not in path:
        raise ValueError(f"its path names no {{layer}}, and it has {len(layers)} layers; name one in `path`")
    in_bucket, is_folder = _GS.fullmatch(root), root.startswith((".", "/")) and os.path.isdir(root)
    if entry.revision is not None and (in_bucket or is_folder):
        raise ValueError("only repositories of a hub have revisions; leave `revision` out")
    if in_bucket and bucket:
        prefix = f"{in_bucket[2]}/" if in_bucket[2] else ""
        source = _in_bucket(bucket, bucket.named(in_bucket[1]), prefix, path.partition("{")[0], home)
    elif is_folder:
        source = _Source(
            lambda name: os.path.isfile(os.path.join(root, name)),
            lambda configs, tensors: (root, False, {name: DiskFile(os.path.join(root, name)) for name in tensors}),
        )
    elif in_bucket or not is_hub_id(root):
        raise ValueError(
            "it is no folder of this machine, no gs://BUCKET/FOLDER and no id of a hub; set `weights` to one"
        )
    else:
        check, hub = bucket.check if bucket else lambda: None, hub or own_hub()
        source = _on_hub(Session(hub, root, revision or entry.revision, check), hub, home, weights, in_use)
    found = [_place(source.has, layer, path, is_sae) for layer in layers]
    places = tuple(place for place in found if place)
    if len(places) < len(layers):
        absent = [str(layer) for layer, place in zip(layers, found, strict=True) if not place]
        wanted = path.replace("{layer}", absent[0]) or "its folder"
        holds = "autoencoder of a known layout" if is_sae else f"{_TENSORS} of matrices"
        listed = ", ".join(absent[:_MOST_LISTED]) + ("" if len(absent) <= _MOST_LISTED else " and more")
        raise ValueError(
            f"there is no {holds} for layer {listed}, such as {wanted}; correct `weights`, `path` or `layers`"
        )
    configs = sorted({place.config for place in places if place.config})
    folder, is_kept, tensors = source.take(configs, sorted({place.tensors for place in places}))
    files = {name: DiskFile(os.path.join(folder, name)) for name in configs} | tensors
    digests = hash_files(files, entry.weights) if weights else {}
    return ReductionFiles(entry, places, folder, tensors, source.revision, digests, is_kept)


def _place(has: Callable[[str], bool], layer: int, path: str, is_sae: bool) -> Place | None:
    """The files of the layer; None if there are none."""
    path = path.replace("{layer}", str(layer)).strip("/")

    def is_there(name: str) -> bool:
        return _PLAIN.fullmatch(name) is not None and has(name)

    if not is_sae:
        return Place(layer, None, path, None, path) if path.endswith(_TENSORS) and is_there(path) else None
    below = f"{path}/" if path else ""
    if not (layout := layout_of(lambda name: is_there(below + name))):
        return None
    config, tensors = below + LAYOUTS[layout].config, below + LAYOUTS[layout].weights
    return Place(layer, layout, path, config if is_there(config) else None, tensors)


def _in_bucket(own: Bucket, bucket: Bucket, prefix: str, path: str, home: str) -> _Source:
    files = {info.name.removeprefix(prefix): BucketFile(bucket, info) for info in bucket.list(prefix + path)}

    def take(configs: list[str], tensors: list[str]) -> tuple[str, bool, dict[str, WeightFile]]:
        folder, is_kept = kept_objects(home, {name: files[name] for name in configs}, own.check)
        return folder, is_kept, {name: files[name] for name in tensors}

    return _Source(files.__contains__, take)


def _on_hub(session: Session, hub: Hub, home: str, weights: bool, in_use: Sequence[str]) -> _Source:
    commit, sizes = session.listing

    def take(configs: list[str], tensors: list[str]) -> tuple[str, bool, dict[str, WeightFile]]:
        wanted = [*configs, *(tensors if weights else [])]
        key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()

        def fill(folder: str) -> None:
            make_room(folder, sum(sizes[name] or 0 for name in wanted), session.model, in_use)
            session.fetch(wanted, folder)

        place = hub_folder(hub, session.model, f"{commit}--{key[:32]}")
        folder, is_kept = kept_copy(home, place, session.check, fill)
        if weights:
            return folder, is_kept, {name: DiskFile(os.path.join(folder, name)) for name in tensors}
        files: dict[str, WeightFile] = {
            name: HubFile(name, sizes[name] or 0, partial(session.read_into, name)) for name in tensors
        }
        return folder, is_kept, files

    return _Source(sizes.__contains__, take, commit)
