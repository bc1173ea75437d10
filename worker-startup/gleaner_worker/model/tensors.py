"""The parameters of one block, and the tensors in Hugging Face's files that hold them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from .config import DecoderConfig
from .families import FAMILIES
from .tensor_names import TensorNames

Shape = tuple[int, ...]
_PARAMETERS = {  # of a linear module: its weight and its bias
    "q": ("wq", "bq"),
    "k": ("wk", "bk"),
    "v": ("wv", "bv"),
    "o": ("wo", "bo"),
    "gate": ("gate", "b_gate"),
    "up": ("up", "b_up"),
    "down": ("down", "b_down"),
}


class Part(NamedTuple):
    """The values of a parameter that a tensor holds. `of` takes them from the tensor; None: the whole tensor."""

    parameter: str
    of: Callable[[np.ndarray], np.ndarray] | None = None


class StoredAs(NamedTuple):
    """A tensor of the files."""

    shape: Shape
    parts: tuple[Part, ...]


class BlockTable(NamedTuple):
    """One block: the shapes of its parameters, and its tensors by their names below `layers.N.`."""

    parameters: dict[str, Shape]
    tensors: dict[str, StoredAs]


def names_of(config: DecoderConfig) -> TensorNames:
    return FAMILIES[config.family].tensors


def outer_table(config: DecoderConfig) -> dict[str, tuple[str, Shape]]:
    """The tensors outside of the blocks that a block needs: name -> (parameter, its shape)."""
    return {names_of(config).embedding: ("embed", (config.vocab_size, config.d_model))}


def block_table(config: DecoderConfig) -> BlockTable:
    """Linear weights stay [out, in]."""
    table = BlockTable({}, {})
    modules = names_of(config).modules
    d, f, h = config.d_model, config.d_ff, config.head_dim
    q, kv = config.num_heads * h, config.num_kv_heads * h
    if config.pre_norms:
        _add_rows(table, f"{modules['norm1']}.weight", {"norm1": (d,)})
    _add_linear(table, modules, {"q": q, "k": kv, "v": kv}, d, config.qkv_bias)
    _add_linear(table, modules, {"o": d}, q, config.o_bias)
    norms = {"q_norm": q, "k_norm": kv} if config.qk_norm == "together" else {"q_norm": h, "k_norm": h}
    norms = (norms if config.qk_norm else {}) | ({"post1": d} if config.post_norms else {})
    norms |= ({"norm2": d} if config.pre_norms else {}) | ({"post2": d} if config.post_norms else {})
    for name, size in norms.items():
        _add_rows(table, f"{modules[name]}.weight", {name: (size,)})
    _add_linear(table, modules, {"gate": f, "up": f}, d, config.mlp_bias)
    _add_linear(table, modules, {"down": d}, f, config.mlp_bias)
    return table


def _add_linear(table: BlockTable, modules: dict, outputs: dict[str, int], into: int, has_bias: bool) -> None:
    """Linear layers of one input, whose rows are in one tensor or in one tensor each."""
    fused = modules.get("qkv" if "q" in outputs else " ".join(outputs))
    groups: Iterable = [(fused, outputs)] if fused else [(modules[name], {name: out}) for name, out in outputs.items()]
    for module, group in groups:
        _add_rows(table, f"{module}.weight", {_PARAMETERS[name][0]: (out, into) for name, out in group.items()})
        if has_bias:
            _add_rows(table, f"{module}.bias", {_PARAMETERS[name][1]: (out,) for name, out in group.items()})


def _add_rows(table: BlockTable, name: str, parameters: dict[str, Shape]) -> None:
    """A tensor of the rows of these parameters, one after another."""
    table.parameters.update(parameters)
    ends = np.cumsum([shape[0] for shape in parameters.values()]).tolist()
    if len(parameters) == 1:
        parts = [Part(*parameters)]
    else:
        begins = [0, *ends]
        parts = [Part(p, partial(_rows, slice(*at))) for p, *at in zip(parameters, begins, ends, strict=False)]
    shape = next(iter(parameters.values()))
    table.tensors[name] = StoredAs((ends[-1], *shape[1:]), tuple(parts))


def _rows(at: slice, array: np.ndarray) -> np.ndarray:
    return array[at]
