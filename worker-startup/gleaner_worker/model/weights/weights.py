"""Hugging Face safetensors as the decoder's parameters, by one table, with every mismatch in one error."""

import logging
import math
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import jax
import numpy as np

from ...architecture.config import DecoderConfig
from ...architecture.config_parser import shown
from ...architecture.reductions import Reduction
from ...architecture.tensor_names import HEADS, OTHER_TOWERS, SCORES
from ...failures import Failure
from ..files.weight_files import WeightFile
from .stored_tensors import DTYPES, FLOATS, PACKED, THREADS, StoredTensor, TensorRead, stored_tensors
from .tensors import Part, block_table, layers_with, names_of, outer_table

log = logging.getLogger(__name__)

_COMPARED, _COMPARED_AT_ONCE = 1 << 20, 16  # values of a range, and ranges
_LISTED = 100  # problems in one error; a model of another family has hundreds


@dataclass(frozen=True)
class Weights:
    """The tensors of a model in its files: matched with its config, and read on request."""

    config: DecoderConfig
    num_layers: int
    dtype: str  # bf16 or fp32, as the arrays have it
    where: str  # the model's name in the spec
    tensors: dict[str, StoredTensor]  # by their names without the prefix of the file
    end: str = ""  # of the tensors after the last block, see sites.ENDS

    def outer(self) -> dict[str, np.ndarray]:
        """The parameters outside of the blocks. Raises Failure("model") for a file that cannot be read, and the errors
        of its bucket."""
        table = outer_table(self.config, self.end)
        arrays = {parameter: np.empty(shape, DTYPES[self.dtype]) for parameter, shape in table.values()}
        self._read([(self.tensors[name], arrays[parameter]) for name, (parameter, _) in table.items()])
        return arrays

    def layer(self, number: int) -> dict[str, np.ndarray]:
        """The parameters of one block, by several reads at once. Raises the errors of `outer`."""
        table, dtype = block_table(self.config, number), DTYPES[self.dtype]
        arrays = {parameter: np.empty(shape, dtype) for parameter, shape in table.parameters.items()}
        whole = {}
        for name, (shape, parts, _, is_packed) in table.tensors.items():
            if parts and parts[0].of is None:
                whole[name] = _target(arrays, parts[0])
            else:
                whole[name] = np.empty(shape, np.uint8 if is_packed else dtype)
        prefix = f"{names_of(self.config).layers}{number}."
        self._read([(self.tensors[prefix + name], array) for name, array in whole.items()])

        cuts = [
            (_target(arrays, part), part.of, [whole[name], *([whole[scales]] if scales else [])])
            for name, (_, parts, scales, _) in table.tensors.items()
            for part in parts
            if part.of
        ]

        def cut(target: np.ndarray, of: Callable[..., np.ndarray], tensors: list[np.ndarray]) -> None:
            target[...] = of(*tensors)

        with ThreadPoolExecutor(THREADS, "weights") as pool:
            list(pool.map(cut, *zip(*cuts, strict=True)) if cuts else [])
        return arrays

    def _read(self, parts: list[tuple[StoredTensor, np.ndarray]]) -> None:
        reads = [read for tensor, array in parts for read in tensor.reads(array)]
        try:
            with ThreadPoolExecutor(min(len(reads), THREADS), "weights") as pool:
                list(pool.map(TensorRead.run, reads))
        except (OSError, ValueError) as error:
            raise _unreadable(self.where, error) from error


def _unreadable(where: str, error: Exception) -> Failure:
    return Failure("model", f"Failed to read the weights of {where}: {error}; copy the model again")


def _target(arrays: dict[str, np.ndarray], part: Part) -> np.ndarray:
    array = arrays[part.parameter]
    return array if part.expert is None else array[part.expert]


def open_weights(
    files: Iterable[WeightFile],
    config: DecoderConfig,
    num_layers: int,
    dtype: str,
    where: str,
    end: str = "",
) -> Weights:
    """Reads the headers of the files alone.

    The dtype of the files may be any float. Raises Failure("model") with every tensor that is missing, unknown,
    duplicated, no float, or of another shape than config.json states.
    """
    return Weights(config, num_layers, dtype, where, _match(stored_tensors(files, where), config, where, end), end)


def with_stored_head(config: DecoderConfig, files: Iterable[WeightFile], where: str) -> DecoderConfig:
    """The config, untied where the files have an unembedding with other values than the embeddings.

    transformers, from 5.0 on, takes such files at their word too, and not config.json. Reads both tensors side by
    side up to the first difference. Raises Failure("model") for files that open_weights refuses.
    """
    own = {names_of(config).head} | ({HEADS[1]} if config.multimodal else set())
    stored = stored_tensors(files, where) if config.is_tied else []
    stored = [tensor for tensor in stored if tensor.name not in HEADS or tensor.name in own]
    if not any(tensor.name in HEADS for tensor in stored):
        return config
    untied = replace(config, is_tied=False)
    matched = _match(stored, untied, where, "head")
    pair = matched[HEADS[0]], matched[names_of(config).embedding]
    if _are_equal(*pair, where):
        return config
    log.warning(
        "The files of %s have a head that differs from the embeddings: using it, although config.json ties them", where
    )
    return untied


def _are_equal(one: StoredTensor, other: StoredTensor, where: str) -> bool:
    """Whether two tensors of one shape have the same values. Memory holds a few ranges of them."""
    size = math.prod(one.shape)

    def is_equal(first: int) -> bool:
        end = min(first + _COMPARED, size)
        return np.array_equal(one.values(first, end), other.values(first, end))

    try:
        with ThreadPoolExecutor(_COMPARED_AT_ONCE, "weights") as pool:
            firsts = range(0, size, _COMPARED)
            groups = (firsts[at : at + _COMPARED_AT_ONCE] for at in range(0, len(firsts), _COMPARED_AT_ONCE))
            return all(all(pool.map(is_equal, group)) for group in groups)
    except (OSError, ValueError) as error:
        raise _unreadable(where, error) from error


def reduction_shapes(reductions: Iterable[Reduction], dtype: str) -> dict:
    """The shapes of the parameters of reductions on the devices: {name: {parameter: [layers, ...]}}."""

    def shape(parameter: str, size: tuple[int, ...]):
        return jax.ShapeDtypeStruct(size, DTYPES[dtype if parameter == "encode" else "fp32"])

    return {each.name: {name: shape(name, size) for name, size in each.parameters.items()} for each in reductions}


def parameter_shapes(config: DecoderConfig, num_layers: int, dtype: str, end: str = "") -> dict:
    """The shapes of the parameters on the devices: {"embed": [V, D], "blocks": {name: [layers, ...]}}, with the layers
    that have the parameter."""
    parameters: dict[str, tuple[int, ...]] = {}
    for layer in range(num_layers):
        parameters |= block_table(config, layer).parameters
    blocks = {
        parameter: (len(layers_with(config, parameter, num_layers)), *shape) for parameter, shape in parameters.items()
    }
    shapes = dict(outer_table(config, end).values()) | {"blocks": blocks}
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, DTYPES[dtype]), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )


def _match(stored: list[StoredTensor], config: DecoderConfig, where: str, end: str) -> dict[str, StoredTensor]:
    """The tensors that the decoder needs, by their names without the prefix of the file."""
    names, found = names_of(config), {tensor.name for tensor in stored}
    prefix = next((prefix for prefix in names.prefixes if prefix + names.embedding in found), names.prefixes[0])
    wanted = {name: (shape, FLOATS) for name, (_, shape) in outer_table(config, end).items()}
    wanted |= {
        f"{names.layers}{layer}.{name}": (tensor.shape, PACKED if tensor.is_packed else FLOATS)
        for layer in range(config.num_layers)
        for name, tensor in block_table(config, layer).tensors.items()
    }
    matched: dict[str, StoredTensor] = {}
    problems = []
    for tensor in stored:
        is_head = tensor.name in HEADS and HEADS[0] in wanted
        name = HEADS[0] if is_head else tensor.name.removeprefix(prefix)
        if name not in wanted and _is_ignored(tensor.name, name, config):
            continue
        shape, dtypes = wanted.get(name, ((), {}))
        if name not in wanted or not (is_head or tensor.name.startswith(prefix)):
            problems.append(f"{shown_name(tensor.name)} is not part of this architecture")
        elif name in matched:
            problems.append(f"{tensor.name} is stored twice")
        elif tensor.shape != shape:
            problems.append(f"{tensor.name} is {list(tensor.shape)}, config.json says {list(shape)}")
        elif tensor.dtype not in dtypes:
            problems.append(f"{tensor.name} is {tensor.dtype}, only {', '.join(dtypes)} are supported")
        if name in wanted:
            matched[name] = tensor
    missing = [name for name in wanted if name not in matched]
    problems += [f"{'' if name in HEADS else prefix}{name} is missing" for name in missing]
    if problems:
        listed = "; ".join(problems[:_LISTED])
        if len(problems) > _LISTED:
            listed += f"; and {len(problems) - _LISTED} more"
        raise Failure(
            "model",
            f"Failed to load the weights of {where}: {listed}; copy the model again, or correct its config.json",
        )
    return matched


def _is_ignored(full_name: str, name: str, config: DecoderConfig) -> bool:
    names = names_of(config)
    layer = re.fullmatch(rf"{re.escape(names.layers)}(0|[1-9]\d{{0,4}})\.(.+)", name, re.DOTALL)
    return (
        name in (f"{names.final_norm}.weight", f"{names.final_norm}.bias")
        or full_name in (*HEADS, *SCORES)
        or (layer[2] if layer else name) in names.buffers
        or (config.multimodal and full_name.startswith(OTHER_TOWERS))
    )


def shown_name(name: str) -> str:
    """A tensor's name as errors show it: a plain name unchanged, any other name quoted, at most 80 characters."""
    return name if re.fullmatch(r"[\w.-]{1,200}", name) else shown(name)
