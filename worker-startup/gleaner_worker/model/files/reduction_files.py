"""The files of an entry of `features` or `project`: named files alone, because a repository may have thousands."""

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ...architecture.config import DecoderConfig
from ...architecture.saes import LAYOUTS, layout_of
from ...failures import Failure
from ...spec.spec import ReductionSpec, Spec, resolve_layers
from ...storage.objects import Bucket
from .download import Session
from .hub import Hub, hub_folder, is_hub_id, own_hub
from .model_cache import kept_copy, make_room
from .weight_files import BucketFile, DiskFile, HubFile, WeightFile, hash_files

_GS = re.compile(r"gs://([^/]+)/(.+?)/*")
_PLAIN = re.compile(r"[\w@+-][\w.@+-]*(?:/[\w@+-][\w.@+-]*)*", re.ASCII)
_TENSORS = ".safetensors"
_MOST_LISTED = 20


@dataclass(frozen=True)
class Place:
    """Where the files of one layer are. layout: of an autoencoder; None for a matrix. config, tensors: names below
    `weights`; an autoencoder may have no config."""

    layer: int
    layout: str | None
    path: str
    config: str | None
    tensors: str


@dataclass(frozen=True)
class ReductionFiles:
    """The files of one entry, of all its layers."""

    entry: ReductionSpec
    places: tuple[Place, ...]
    folder: str  # of the configs
    tensors: dict[str, WeightFile]  # by name below `weights`
    revision: str | None  # the commit of a repository of a hub
    digests: dict[str, str]  # of every file that the results depend on, by name; empty without weights

    @property
    def facts(self) -> dict:
        """What the header of a shard says about the files."""
        digest = hashlib.sha256("".join(f"{name} {self.digests[name]}\n" for name in sorted(self.digests)).encode())
        return {"weights": self.entry.weights, "revision": self.revision, "digest": digest.hexdigest()[:16]}


class _Source(Protocol):
    """A place with files. `take` makes the configs and the tensors readable."""

    revision: str | None

    def has(self, name: str) -> bool: ...

    def take(self, configs: list[str], tensors: list[str]) -> tuple[str, dict[str, WeightFile]]: ...


def find_reduction_files(
    spec: Spec,
    entry: ReductionSpec,
    config: DecoderConfig,
    home: str,
    bucket: Bucket | None,
    hub: Hub | None,
    revision: str | None,
    weights: bool,
) -> ReductionFiles:
    """The files of `entry`, at the commit `revision` where a run has one already. Without `weights`, tensors of a hub
    stay there. Raises Failure that names every layer without files."""
    root, path = entry.weights.rstrip("/"), entry.path
    if root.endswith(_TENSORS):
        root, _, path = root.rpartition("/")
    source = _open(entry, root, home, bucket, hub, revision or entry.revision, weights)
    layers = resolve_layers(spec, config.num_layers, entry)
    if len(layers) > 1 and "{layer}" not in path and entry in spec.features:
        raise reduction_failure(
            entry, f"its path names no {{layer}}, and it has {len(layers)} layers", "name one in `path`"
        )
    found = {layer: _place(source, layer, path, entry in spec.features) for layer in layers}
    if absent := [str(layer) for layer, place in found.items() if place is None]:
        wanted = path.replace("{layer}", absent[0]) or "its folder"
        holds = "autoencoder of a known layout" if entry in spec.features else f"{_TENSORS} of matrices"
        listed = ", ".join(absent[:_MOST_LISTED]) + ("" if len(absent) <= _MOST_LISTED else " and more")
        raise reduction_failure(
            entry, f"there is no {holds} for layer {listed}, such as {wanted}", "correct `weights`, `path` or `layers`"
        )
    places = tuple(place for place in found.values() if place)
    configs = sorted({place.config for place in places if place.config})
    folder, tensors = source.take(configs, sorted({place.tensors for place in places}))
    digests = {}
    if weights:
        disk: dict[str, WeightFile] = {name: DiskFile(os.path.join(folder, name)) for name in configs}
        of_bucket = {name: file.digest for name, file in tensors.items() if isinstance(file, BucketFile)}
        digests = of_bucket | hash_files(
            disk | {name: file for name, file in tensors.items() if name not in of_bucket}, entry.weights
        )
    return ReductionFiles(entry, places, folder, tensors, source.revision, digests)


def _place(source: _Source, layer: int, path: str, is_sae: bool) -> Place | None:
    path = path.replace("{layer}", str(layer)).strip("/")
    if not is_sae:
        return Place(layer, None, path, None, path) if path.endswith(_TENSORS) and source.has(path) else None

    def below(name: str) -> str:
        return f"{path}/{name}" if path else name

    if not (layout := layout_of(lambda name: source.has(below(name)))):
        return None
    config, tensors = below(LAYOUTS[layout].config), below(LAYOUTS[layout].weights)
    return Place(layer, layout, path, config if source.has(config) else None, tensors)


def _open(
    entry: ReductionSpec,
    root: str,
    home: str,
    bucket: Bucket | None,
    hub: Hub | None,
    revision: str | None,
    weights: bool,
) -> _Source:
    in_bucket, is_folder = _GS.fullmatch(root), root.startswith((".", "/")) and os.path.isdir(root)
    if entry.revision is not None and (in_bucket or is_folder):
        raise reduction_failure(entry, "only repositories of a hub have revisions", "leave `revision` out")
    if in_bucket and bucket:
        return _InBucket(bucket, bucket.named(in_bucket[1]), f"{in_bucket[2]}/", home)
    if is_folder:
        return _InFolder(root)
    if in_bucket or not is_hub_id(root):
        raise reduction_failure(
            entry, "it is no folder of this machine, no gs://BUCKET/FOLDER and no id of a hub", "set `weights` to one"
        )
    session = Session(hub or own_hub(), root, revision, bucket.check if bucket else lambda: None)
    return _OnHub(session, hub or own_hub(), home, weights)


class _InFolder:
    def __init__(self, root: str):
        self._root, self.revision = root, None

    def has(self, name: str) -> bool:
        return bool(_PLAIN.fullmatch(name)) and os.path.isfile(os.path.join(self._root, name))

    def take(self, configs: list[str], tensors: list[str]) -> tuple[str, dict[str, WeightFile]]:
        return self._root, {name: DiskFile(os.path.join(self._root, name)) for name in tensors}


class _InBucket:
    def __init__(self, own: Bucket, bucket: Bucket, prefix: str, home: str):
        self._check, self._home, self.revision = own.check, home, None
        self._files = {info.name.removeprefix(prefix): BucketFile(bucket, info) for info in bucket.list(prefix)}

    def has(self, name: str) -> bool:
        return bool(_PLAIN.fullmatch(name)) and name in self._files

    def take(self, configs: list[str], tensors: list[str]) -> tuple[str, dict[str, WeightFile]]:
        def fill(folder: str) -> None:
            for name in configs:
                self._files[name].copy_to(folder, name)

        lines = [f"{self._files[name].address} {self._files[name].info.generation}" for name in configs]
        folder, _ = kept_copy(self._home, f"gs--{_key(lines)}", self._check, fill)
        return folder, {name: self._files[name] for name in tensors}


class _OnHub:
    def __init__(self, session: Session, hub: Hub, home: str, weights: bool):
        self._session, self._hub, self._home, self._weights = session, hub, home, weights
        self.revision: str | None = session.listing[0]

    def has(self, name: str) -> bool:
        return bool(_PLAIN.fullmatch(name)) and name in self._session.listing[1]

    def take(self, configs: list[str], tensors: list[str]) -> tuple[str, dict[str, WeightFile]]:
        wanted, sizes = [*configs, *(tensors if self._weights else [])], self._session.listing[1]

        def fill(folder: str) -> None:
            make_room(folder, sum(sizes[name] or 0 for name in wanted), self._session.model)
            self._session.fetch(wanted, folder)

        key = hub_folder(self._hub, self._session.model, f"{self.revision}--{_key(wanted)}")
        folder, _ = kept_copy(self._home, key, self._session.check, fill)
        if self._weights:
            return folder, {name: DiskFile(os.path.join(folder, name)) for name in tensors}
        return folder, {
            name: HubFile(name, sizes[name] or 0, partial(self._session.read_into, name)) for name in tensors
        }


def _key(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def reduction_failure(entry: ReductionSpec, problem: str, remedy: str) -> Failure:
    return Failure("model", f"Failed to use {entry.name} ({entry.weights}): {problem}; {remedy}")
