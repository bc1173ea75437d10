"""The time of a compiled TPU program, estimated from its text. Frozen, so that figures of programs can be compared.

The estimate adds four parts, without any overlap between them:

1. The compiler's own `estimated_cycles` of every instruction, times the trips of the loops around it, over the clock.
2. For each Pallas call, the larger of two times: FLOPs over 0.3 of the peak, and the bytes of its operands and results
   over the HBM rate. The compiler has no estimate of such a call. The first floating-point operand tells the calls
   apart: queries of causal attention, whose result is [..., heads, T, H], or rows [M, K] of a ragged product, whose
   second operand has the weights of the experts. Where those are of all layers, the bytes are those that the call
   states, with each expert of one layer read once for each tile of columns: its grid has no tile of another layer.
3. The bytes of each collective over 45 GB/s: the larger of its operands and its result.
   Collectives that run beside products, by options of the compiler, are not counted.
4. The compare-exchanges of each sort, n/4 * log2(n) * (log2(n) + 1) of n values, 1,024 of them at once. Each stores two
   registers of every operand, one a cycle. The compiler has no estimate of a sort.

A conditional costs as much as its most expensive branch.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

from ..architecture.config import DecoderConfig
from .accelerators import Device

PALLAS_SHARE_OF_PEAK = 0.3
COLLECTIVE_BYTES_PER_S = 45e9
_REGISTER_VALUES = 1024

_SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_FAST = re.compile(r"\w+\[[\d,]*\]\{[^}]*S\(1\)\}")  # a result on the chip, where the compiler loads small stacks early
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)", re.DOTALL)
_SHAPE = re.compile(r"\b(pred|[suf]\d+|bf16)\[([\d,]*)\]")
# Calls that the estimate counts, and those that take no time.
_COUNTED = {"tpu_custom_call", "AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast"}
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_STATED_BYTES = re.compile(r'"bytes_accessed":"(\d+)"')
_LAYOUTS = re.compile(r"operand_layout_constraints=\{((?:[^{}]|\{[^{}]*\})*)\}")


@dataclass(frozen=True)
class Collective:
    """One collective instruction of a program."""

    kind: str
    dtypes: tuple[str, ...]
    size_bytes: int  # the larger of operands and result, of one call
    calls: int


@dataclass
class Cost:
    """The parts of the estimate of a program."""

    cycles: float = 0
    kernels: list[tuple[float, int, int]] = field(default_factory=list)  # FLOPs, bytes, calls
    collectives: list[Collective] = field(default_factory=list)

    def milliseconds(self, device: Device) -> float:
        """The estimated time of one run of the program on `device`."""
        kernels = sum(
            calls * max(flops / (PALLAS_SHARE_OF_PEAK * device.peak_flops), size / device.hbm_bytes_per_s)
            for flops, size, calls in self.kernels
        )
        moved = sum(each.size_bytes * each.calls for each in self.collectives) / COLLECTIVE_BYTES_PER_S
        return 1e3 * (self.cycles / device.clock_hz + kernels + moved)


def cost_of(text: str) -> Cost:
    """The cost of a program by the text of its optimised HLO, `jax.stages.Compiled.as_text()`."""
    computations, entry = _computations(text)
    return _cost(computations, entry)


def square_buffers(text: str, length: int) -> list[str]:
    """The buffers with two axes of `length`: the scores of all tokens with all tokens."""
    return _buffers(text, lambda axes: axes.count(length) >= 2)


def expert_buffers(text: str, config: DecoderConfig, ways: int) -> list[str]:
    """The buffers with a device's part of the experts of one layer or of more, copied from the stack of all layers."""
    if not config.experts:
        return []
    text = _FAST.sub("", text)
    of_expert = Counter((config.experts.d_ff // ways, config.d_model))
    of_layer = config.experts.count * (config.experts.d_ff // ways) * config.d_model
    return _buffers(text, lambda axes: of_expert <= Counter(axes) and math.prod(axes) % of_layer == 0)


def _buffers(text: str, is_one: Callable[[list[int]], bool]) -> list[str]:
    """Floating-point shapes of buffers, without parameters. The result of a start names its operands too, that of its
    end does not."""
    others = ("parameter", "get-tuple-element", "while", "tuple", "bitcast")
    found = set()
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if match and match[3] not in others and not match[3].endswith("-start"):
            found |= {f"{dtype}{axes}" for dtype, axes in _shapes(match[2]) if is_one(axes)}
    return sorted(found)


def uncounted(text: str) -> list[str]:
    """The operations for which the estimate has no time, such as the call of jax.lax.top_k."""
    lines = [line for line in text.splitlines() if _INSTRUCTION.match(line) and not _CYCLES.search(line)]
    targets = {match[1] for line in lines if (match := re.search(r'custom_call_target="([^"]*)"', line))}
    return sorted(targets - _COUNTED)


def products_of_other_types(text: str) -> list[str]:
    """The matrix products, by their einsum, that do not sum products of bf16 in fp32."""
    found = set()
    for lines in _computations(text)[0].values():
        matches = [match for match in map(_INSTRUCTION.match, lines) if match]
        types = {match[1]: match[2].partition("[")[0] for match in matches}
        for match in matches:
            if match[3] in ("convolution", "dot"):
                operands = [types[name] for name in re.findall(r"%([\w.\-]+)", match[4].partition(")")[0])]
                if [*operands, types[match[1]]] != ["bf16", "bf16", "f32"]:
                    found.add(f"{match[1]}: {' and '.join(operands)} to {types[match[1]]}")
    return sorted(found)


def _cost(computations: dict[str, list[str]], name: str) -> Cost:
    total = Cost()
    types: dict[str, str] = {}
    for line in computations[name]:
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        instruction, result, operation, rest = match.groups()
        types[instruction] = result
        if operation == "while":
            trips = _trips(computations[_attribute(line, "condition")])
            _add(total, _cost(computations, _attribute(line, "body")), trips)
        elif operation == "conditional":
            branches = re.findall(r"[\w.\-]+", re.search(r"branch_computations=\{(.*?)\}", line)[1])  # type: ignore[index]
            _add(total, max((_cost(computations, branch) for branch in branches), key=_weight), 1)
        elif operation == "call":
            _add(total, _cost(computations, _attribute(line, "to_apply")), 1)
        elif operation.removesuffix("-start") in _COLLECTIVES:
            total.collectives.append(_collective(operation, result, rest, types))
        elif operation == "sort":
            total.cycles += _sort_cycles(line, result)
        elif '"tpu_custom_call"' in line:
            total.kernels.append((*_kernel(line, result), 1))
        elif cycles := _CYCLES.search(line):
            total.cycles += int(cycles[1])
    return total


def _add(total: Cost, part: Cost, times: int) -> None:
    total.cycles += part.cycles * times
    total.kernels += [(flops, size, calls * times) for flops, size, calls in part.kernels]
    total.collectives += [
        Collective(each.kind, each.dtypes, each.size_bytes, each.calls * times) for each in part.collectives
    ]


def _weight(cost: Cost) -> float:
    """Orders the branches of a conditional; their kernels differ in nothing but the mask."""
    return cost.cycles + sum(flops for flops, _, _ in cost.kernels)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The instructions of each computation, and the name of the entry. An attribute may hold line breaks, so only a
    brace alone on its line ends a computation."""
    computations: dict[str, list[str]] = {}
    current, entry = None, ""
    for line in text.splitlines():
        if current is None:
            if match := _COMPUTATION.match(line):
                current = computations[match[2]] = []
                entry = match[2] if match[1] else entry
        elif line == "}":
            current = None
        elif _INSTRUCTION.match(line) or not current:
            current.append(line)
        else:
            current[-1] += line
    return computations, entry


def _trips(condition: list[str]) -> int:
    """The trips of a loop of jax.lax.scan, which compares its counter with a constant."""
    return max(int(value) for line in condition for value in re.findall(r" constant\((\d+)\)", line))


def _attribute(line: str, name: str) -> str:
    return re.search(rf"{name}=%?([\w.\-]+)", line)[1]  # type: ignore[index]


def _collective(operation: str, result: str, rest: str, types: dict[str, str]) -> Collective:
    operands = re.findall(r"%([\w.\-]+)", rest.partition(")")[0])
    read = sum(_bytes(types.get(name, "")) for name in operands)
    # The result of a -start form holds the operands too.
    made = max((_size(*shape) for shape in _shapes(result)), default=0) if "-start" in operation else _bytes(result)
    dtypes = tuple(sorted({dtype for dtype, axes in _shapes(result) if axes}))
    return Collective(operation.removesuffix("-start"), dtypes, max(read, made), 1)


def _kernel(line: str, result: str) -> tuple[float, int]:
    """FLOPs and bytes of a call: of causal attention, of a ragged product, or of integers alone."""
    operands = _LAYOUTS.search(line)[1]  # type: ignore[index]
    floats = [axes for dtype, axes in _shapes(operands) if dtype in ("bf16", "f32") and len(axes) >= 2]
    size = _bytes(operands) + _bytes(result)
    if not floats:
        return 0.0, size
    (_, made), *_ = _shapes(result)
    if len(floats[0]) != 2:
        return 4 * prod(made) * made[-2] / 2, size
    lengths = [axes[0] for dtype, axes in _shapes(operands) if dtype == "s32" and axes and axes[0] > 1]
    experts, tiles = lengths[0] - 1, lengths[1]  # the rows where experts begin, and the expert of each tile of rows
    if floats[1][0] > experts:
        of_expert = _size("bf16", floats[1][1:])
        size = int(_STATED_BYTES.search(line)[1]) - (tiles - experts) * of_expert  # type: ignore[index]
    return 2 * prod(floats[0]) * made[-1], size


def _sort_cycles(line: str, result: str) -> float:
    shapes = [axes for _, axes in _shapes(result)]
    size = shapes[0][int(re.search(r"dimensions=\{(\d+)\}", line)[1])]  # type: ignore[index]
    depth, registers = math.ceil(math.log2(max(size, 2))), math.ceil(prod(shapes[0]) / _REGISTER_VALUES)
    return registers / 4 * depth * (depth + 1) * 2 * len(shapes)


def _shapes(text: str) -> Iterator[tuple[str, list[int]]]:
    for dtype, axes in _SHAPE.findall(text):
        yield dtype, [int(axis) for axis in axes.split(",") if axis]


def _size(dtype: str, axes: list[int]) -> int:
    return _SIZES.get(dtype, 4) * prod(axes)


def _bytes(text: str) -> int:
    return sum(_size(*shape) for shape in _shapes(text))
