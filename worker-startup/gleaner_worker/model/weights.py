"""Hugging Face safetensors as the decoder's parameters, by one table, with every mismatch in one error."""

import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from gleaner_reader.safetensors_header import MAX_TENSORS

from ..failures import Failure
from .config import DecoderConfig
from .config_parser import shown
from .identity import INDEX, ONE_FILE, files_of_index
from .tensors import EMBEDDING, FINAL_NORM, HEADS, OLD_BUFFERS, OTHER_TOWERS, PREFIXES, layer_table

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}

_STORED = {"BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype(np.float16), "F32": np.dtype(np.float32)}
_LISTED = 100  # problems in one error; a model of another family has hundreds
_LAYER = re.compile(r"layers\.(0|[1-9]\d{0,4})\.(.+)", re.DOTALL)


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a safetensors file."""

    name: str
    path: str
    dtype: str  # as safetensors names the type
    shape: tuple[int, ...]
    begin: int  # of its bytes in the file
    end: int

    def read_into(self, target: np.ndarray) -> None:
        """Converts while it reads from the file's pages: memory never holds a second copy of the tensor."""
        stored = np.memmap(self.path, np.uint8, "r")[self.begin : self.end]
        target[...] = stored.view(_STORED[self.dtype]).reshape(self.shape)


@dataclass(frozen=True)
class Weights:
    """The tensors of a model in its files: matched with its config, and read on request."""

    config: DecoderConfig
    num_layers: int
    dtype: str  # bf16 or fp32, as the arrays have it
    where: str  # the model's name in the spec
    tensors: dict[str, StoredTensor]  # by their names without the prefix of the file

    def embedding(self) -> np.ndarray:
        """[V, D]. Raises Failure("model") when the file cannot be read."""
        array = np.empty((self.config.vocab_size, self.config.d_model), DTYPES[self.dtype])
        self._read([(self.tensors[EMBEDDING], array)])
        return array

    def layer(self, number: int) -> dict[str, np.ndarray]:
        """The parameters of one block, read on several threads. Raises Failure("model") as `embedding` does."""
        table = layer_table(self.config)
        arrays = {parameter: np.empty(shape, DTYPES[self.dtype]) for parameter, shape in table.values()}
        self._read([(self.tensors[f"layers.{number}.{name}"], arrays[table[name][0]]) for name in table])
        return arrays

    def _read(self, parts: list[tuple[StoredTensor, np.ndarray]]) -> None:
        try:
            with ThreadPoolExecutor(min(len(parts), os.cpu_count() or 1), "weights") as pool:
                list(pool.map(lambda part: part[0].read_into(part[1]), parts))
        except (OSError, ValueError) as error:
            raise Failure(
                "model", f"Failed to read the weights of {self.where}: {error}; copy the model again"
            ) from error


def open_weights(folder: str, config: DecoderConfig, num_layers: int, dtype: str, where: str) -> Weights:
    """Reads the headers of the files alone.

    The dtype of the files may be any float. Raises Failure("model") with every tensor that is missing, unknown,
    duplicated, no float, or of another shape than config.json states.
    """
    stored = [tensor for path in weight_files(folder, where) for tensor in read_header(path, where)]
    return Weights(config, num_layers, dtype, where, _match(stored, config, layer_table(config), where))


def parameter_shapes(config: DecoderConfig, num_layers: int, dtype: str) -> dict:
    """The shapes of the parameters on the devices: {"embed": [V, D], "blocks": {name: [num_layers, ...]}}."""
    blocks = {parameter: (num_layers, *shape) for parameter, shape in layer_table(config).values()}
    shapes = {"embed": (config.vocab_size, config.d_model), "blocks": blocks}
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, DTYPES[dtype]), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )


def read_header(path: str, where: str) -> list[StoredTensor]:
    """The tensors of a safetensors file; raises Failure("model") for any other file, damaged or cut short."""
    try:
        with safe_open(path, framework="numpy"):
            pass  # The library compares the header with the file's length, and refuses tensors that overlap.
        with open(path, "rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(start - 8), object_pairs_hook=_unique)
        if len(header) > MAX_TENSORS:
            raise ValueError(f"it has {len(header)} tensors; the limit is {MAX_TENSORS}")
        header.pop("__metadata__", None)
        tensors = []
        for name, entry in header.items():
            begin, end = (start + offset for offset in entry["data_offsets"])
            tensors.append(StoredTensor(name, path, entry["dtype"], tuple(entry["shape"]), begin, end))
        return tensors
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(
            "model", f"Failed to read {os.path.basename(path)} of {where}: {error}; copy the model again"
        ) from error


def _unique(pairs: list[tuple[str, object]]) -> dict:
    """The object of these pairs. Raises ValueError for a duplicate key: dict() keeps the last value silently."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:100]!r} is stored twice")
    return values


def _match(
    stored: Iterable[StoredTensor], config: DecoderConfig, table: dict[str, tuple[str, tuple[int, ...]]], where: str
) -> dict[str, StoredTensor]:
    """The tensors that the decoder needs, by their names without the prefix of the file."""
    stored = list(stored)
    names = {tensor.name for tensor in stored}
    prefix = next((prefix for prefix in PREFIXES if prefix + EMBEDDING in names), PREFIXES[0])
    shapes = {EMBEDDING: (config.vocab_size, config.d_model)}
    shapes |= {f"layers.{i}.{name}": shape for i in range(config.num_layers) for name, (_, shape) in table.items()}
    matched: dict[str, StoredTensor] = {}
    problems = []
    for tensor in stored:
        name = tensor.name.removeprefix(prefix)
        if _is_ignored(tensor.name, name, config):
            continue
        if name not in shapes or not tensor.name.startswith(prefix):
            problems.append(f"{shown_name(tensor.name)} is not part of this architecture")
        elif name in matched:
            problems.append(f"{tensor.name} is stored twice")
        elif tensor.shape != shapes[name]:
            problems.append(f"{tensor.name} is {list(tensor.shape)}, config.json says {list(shapes[name])}")
        elif tensor.dtype not in _STORED:
            problems.append(f"{tensor.name} is {tensor.dtype}, only {', '.join(_STORED)} are supported")
        if name in shapes:
            matched[name] = tensor
    problems += [f"{prefix}{name} is missing" for name in shapes if name not in matched]
    if problems:
        listed = "; ".join(problems[:_LISTED])
        if len(problems) > _LISTED:
            listed += f"; and {len(problems) - _LISTED} more"
        raise Failure("model", f"Failed to load the weights of {where}: {listed}")
    return matched


def _is_ignored(full_name: str, name: str, config: DecoderConfig) -> bool:
    layer = _LAYER.fullmatch(name)
    return (
        name == FINAL_NORM
        or full_name in HEADS
        or (layer[2] if layer else name) in OLD_BUFFERS
        or (config.multimodal and full_name.startswith(OTHER_TOWERS))
    )


def shown_name(name: str) -> str:
    """A tensor's name as errors show it: a plain name unchanged, any other name quoted, at most 80 characters."""
    return name if re.fullmatch(r"[\w.-]{1,200}", name) else shown(name)


def weight_files(folder: str, where: str) -> list[str]:
    """The safetensors files of a model folder: a single file, or the files of its index."""
    names = files_of_index(folder, where) if os.path.exists(os.path.join(folder, INDEX)) else [ONE_FILE]
    absent = [name for name in names if not os.path.isfile(os.path.join(folder, name))]
    if absent:
        raise Failure(
            "model",
            f"Failed to load {where}: it has no {', '.join(absent[:5])}"
            f"{f' and {len(absent) - 5} more' if len(absent) > 5 else ''} (pickled weights are never read)",
        )
    return [os.path.join(folder, name) for name in names]
