"""The parameters of one block, and the tensors in Hugging Face's files that hold them."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ...architecture.config import DecoderConfig
from ...architecture.families import FAMILIES
from ...architecture.tensor_names import HEADS, TensorNames
from .mxfp4 import GROUP, unpack

Shape = tuple[int, ...]
_PARAMETERS = {  # of a linear module: its weight and its bias
    "q": ("wq", "bq"),
    "k": ("wk", "bk"),
    "v": ("wv", "bv"),
    "o": ("wo", "bo"),
    "gate": ("gate", "b_gate"),
    "up": ("up", "b_up"),
    "down": ("down", "b_down"),
    "router": ("router", "b_router"),
}
# The parameters of a dense MLP, and of a mixture.
OF_DENSE = {"gate", "b_gate", "up", "b_up", "down", "b_down"}
EXPERTS = ("experts_gate", "experts_up", "experts_down")
OF_MIXTURE = {"router", "b_router", *EXPERTS, *(f"b_{name}" for name in EXPERTS)}
OF_MLP = OF_DENSE | OF_MIXTURE


class Part(NamedTuple):
    """The values of a parameter, or of one expert in it, that a tensor holds.

    of: takes the values from the tensor, and from its scales if it has some; None: the whole tensor as it is.
    """

    parameter: str
    of: Callable[..., np.ndarray] | None = None
    expert: int | None = None


class FileTensor(NamedTuple):
    """A tensor of the files."""

    shape: Shape
    parts: tuple[Part, ...]
    scales: str | None = None  # the tensor with the scales of packed values
    is_packed: bool = False  # bytes, not floats


class BlockTable(NamedTuple):
    """One block: the shapes of its parameters, and its tensors by their names below `layers.N.`."""

    parameters: dict[str, Shape]
    tensors: dict[str, FileTensor]


def names_of(config: DecoderConfig) -> TensorNames:
    return FAMILIES[config.family].tensors


def outer_table(config: DecoderConfig, end: str = "") -> dict[str, tuple[str, Shape]]:
    """The tensors outside of the blocks: name -> (parameter, its shape). end: of those after the last block, see
    sites.ENDS."""
    names = names_of(config)
    table: dict[str, tuple[str, Shape]] = {names.embedding: ("embed", (config.vocab_size, config.d_model))}
    if config.learned_positions:
        table[names.positions] = ("positions", (config.max_positions, config.d_model))
    if end:
        for kind, parameter in (("weight", "final_norm"), ("bias", "final_norm_bias"))[: 1 + config.layer_norm]:
            table[f"{names.final_norm}.{kind}"] = (parameter, (config.d_model,))
    if end == "head":
        table[HEADS[0]] = ("head", (config.vocab_size, config.d_model))
    return table


def layers_with(config: DecoderConfig, parameter: str, end: int) -> list[int]:
    """The layers before `end` that have the parameter: those of one kind, in a model of dense and mixture layers."""
    if config.experts is None or parameter not in OF_MLP:
        return list(range(end))
    return [layer for layer in range(end) if config.experts.layers[layer] == (parameter in OF_MIXTURE)]


def block_table(config: DecoderConfig, layer: int = 0) -> BlockTable:
    """Linear weights become [out, in], those of experts [experts, F, D]: D is the wider axis, so a TPU pads them the
    least."""
    table = BlockTable({}, {})
    d, f, h = config.d_model, config.d_ff, config.head_dim
    q, kv = config.num_heads * h, config.num_kv_heads * h
    add_linear, add_norm = partial(_add_linear, table, config), partial(_add_norm, table, config)
    if config.pre_norms:
        add_norm("norm1", d)
    add_linear({"q": q, "k": kv, "v": kv}, d, config.qkv_bias)
    add_linear({"o": d}, q, config.o_bias)
    if config.sinks:
        _add_rows(table, names_of(config).modules["sinks"], {"sinks": (config.num_heads,)})
    if config.qk_norm:
        for name, size in (("q_norm", q), ("k_norm", kv)):
            add_norm(name, size if config.qk_norm == "together" else h)
    if config.post_norms:
        add_norm("post1", d)
    if config.pre_norms:
        add_norm("norm2", d)
    if config.post_norms:
        add_norm("post2", d)
    if config.experts and config.experts.layers[layer]:
        add_linear({"router": config.experts.count}, d, config.experts.biases)
        _add_experts(table, config)
    else:
        add_linear({"gate": f, "up": f} if config.gated else {"up": f}, d, config.mlp_bias)
        add_linear({"down": d}, f, config.mlp_bias)
    return table


def _add_norm(table: BlockTable, config: DecoderConfig, name: str, size: int) -> None:
    module = names_of(config).modules[name]
    _add_rows(table, f"{module}.weight", {name: (size,)})
    if config.layer_norm:
        _add_rows(table, f"{module}.bias", {f"{name}_bias": (size,)})


def _add_linear(table: BlockTable, config: DecoderConfig, outputs: dict[str, int], into: int, has_bias: bool) -> None:
    """Linear layers of one input, whose rows are in one tensor or in one tensor each."""
    names = names_of(config)
    fused = names.modules.get(" ".join(outputs))
    groups = [(fused, outputs)] if fused else [(names.modules[name], {name: out}) for name, out in outputs.items()]
    for module, group in groups:
        heads = config.num_heads if names.by_head and len(group) == 3 else None
        weights: dict[str, Shape] = {_PARAMETERS[name][0]: (out, into) for name, out in group.items()}
        _add_rows(table, f"{module}.weight", weights, names.transposed, heads)
        if has_bias:
            _add_rows(
                table, f"{module}.bias", {_PARAMETERS[name][1]: (out,) for name, out in group.items()}, False, heads
            )


def _add_rows(
    table: BlockTable, name: str, parameters: dict[str, Shape], transposed: bool = False, heads: int | None = None
) -> None:
    """A tensor of the rows of these parameters: one after another, or those of each of `heads` together."""
    table.parameters.update(parameters)
    sizes = [shape[0] for shape in parameters.values()]
    ends = np.cumsum(sizes).tolist()
    cuts: list[Callable] = [
        partial(_head_rows, index, heads) if heads else partial(_rows, slice(end - size, end), transposed)
        for index, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    as_it_is = len(sizes) == 1 and not transposed
    parts = tuple(Part(p, None if as_it_is else cut) for p, cut in zip(parameters, cuts, strict=True))
    into = next(iter(parameters.values()))[1:]
    table.tensors[name] = FileTensor((*into, ends[-1]) if transposed else (ends[-1], *into), parts)


def _rows(at: slice, transposed: bool, array: np.ndarray) -> np.ndarray:
    return (array.T if transposed else array)[at]


def _head_rows(index: int, heads: int, array: np.ndarray) -> np.ndarray:
    by_head = array.reshape(heads, 3, -1, *array.shape[1:])
    return by_head[:, index].reshape(-1, *array.shape[1:])


def _add_experts(table: BlockTable, config: DecoderConfig) -> None:
    experts, modules = config.experts, names_of(config).modules
    assert experts
    n, d, f = experts.count, config.d_model, experts.d_ff
    table.parameters.update(dict.fromkeys(EXPERTS, (n, f, d)))
    if "experts" in modules:
        _add_stacked_experts(table, config, modules["experts"])
        return
    for number in range(n):
        for name in EXPERTS:
            shape, of = ((d, f), np.transpose) if name == "experts_down" else ((f, d), None)
            table.tensors[f"{modules[name].format(number)}.weight"] = FileTensor(shape, (Part(name, of, number),))


def _add_stacked_experts(table: BlockTable, config: DecoderConfig, module: str) -> None:
    """gpt-oss: all experts in one tensor, the columns of gate and up alternate."""
    assert config.experts
    n, d, f = config.experts.count, config.d_model, config.experts.d_ff
    table.parameters.update({"b_experts_gate": (n, f), "b_experts_up": (n, f), "b_experts_down": (n, d)})
    for name, out, into, ends in (("gate_up_proj", 2 * f, d, ("gate", "up")), ("down_proj", d, f, ("down",))):
        steps = [(f"experts_{end}", slice(first, None, len(ends))) for first, end in enumerate(ends)]
        is_turned = name == "down_proj"  # in the packed form; in the other, gate and up are
        biases = tuple(Part(f"b_{parameter}", partial(_outputs, step, False)) for parameter, step in steps)
        table.tensors[f"{module}.{name}_bias"] = FileTensor((n, out), biases)
        if config.experts.is_mxfp4:
            parts = tuple(
                Part(parameter, partial(_unpacked, number, step, is_turned), number)
                for number in range(n)
                for parameter, step in steps
            )
            scales = f"{module}.{name}_scales"
            table.tensors[f"{module}.{name}_blocks"] = FileTensor(
                (n, out, into // GROUP, GROUP // 2), parts, scales, is_packed=True
            )
            table.tensors[scales] = FileTensor((n, out, into // GROUP), (), is_packed=True)
        else:
            parts = tuple(Part(parameter, partial(_outputs, step, not is_turned)) for parameter, step in steps)
            table.tensors[f"{module}.{name}"] = FileTensor((n, into, out), parts)


def _outputs(step: slice, is_turned: bool, array: np.ndarray) -> np.ndarray:
    found = array[..., step]
    return found.swapaxes(1, 2) if is_turned else found


def _unpacked(expert: int, rows: slice, is_turned: bool, blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    found = unpack(expert, rows, blocks, scales)
    return found.T if is_turned else found
