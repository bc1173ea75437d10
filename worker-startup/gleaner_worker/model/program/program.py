"""Compiles the one program of a run over all devices, and checks that it fits into their memory."""

import hashlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from ...architecture.config import DecoderConfig
from ...architecture.sites import MOMENTS, Capture
from ...failures import Failure
from ...spec.selections import POOLS
from ..weights.mesh import Layout, parameter_specs
from .capture import compute_step
from .rows import Rows
from .split import Split
from .tuning import Tuning

# Every value is rounded where the decoder and capture round it. Otherwise XLA leaves out different roundings on one
# device and on several, and the bits differ.
COMPILER_OPTIONS: dict[str, str | bool] = {"xla_allow_excess_precision": False}
RESERVE = 0.02  # of a device's memory, for the runtime and for gaps between arrays
_MAX_IN_FLIGHT = 3  # steps: computed, waiting, and copied to the host


@dataclass(frozen=True)
class StepShape:
    """The shape of every step, for one device."""

    rows: int
    row_tokens: int
    width: int  # W of capture.compute_step


@dataclass(frozen=True)
class Program:
    """The compiled computation of a step."""

    run: jax.stages.Compiled  # (params, rows, picks), as compute_step takes them, on the devices
    in_flight: int  # steps that the devices' memory holds at once
    version: str  # the sha256 of its text before the compilation


def compile_rows(
    capture: Capture, layout: Layout, params: dict, shape: StepShape, tuning: Tuning, limit: int | None, where: str
) -> Program:
    """Compiles the program of a step. params: arrays or their shapes. limit: bytes of one device, when known.

    Raises Failure("model") when the weights and one step do not fit; `where` names the model and the limit on its
    samples.
    """
    lowered = lower_rows(capture, layout, params, shape, tuning)
    version = hashlib.sha256(lowered.as_text().encode()).hexdigest()
    try:
        compiled = lowered.compile(COMPILER_OPTIONS)
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise _too_large(shape, where, "the compiler finds no room for it") from error
    memory = compiled.memory_analysis()
    if limit is None or memory is None:
        return Program(compiled, _MAX_IN_FLIGHT, version)
    fixed, output = memory.argument_size_in_bytes + memory.temp_size_in_bytes, memory.output_size_in_bytes
    room = int((1 - RESERVE) * limit)
    if fixed + output > room:
        raise _too_large(
            shape,
            where,
            f"a device has {limit / 1e9:.3g} GB with {RESERVE:.0%} to stay free, and needs "
            f"{memory.argument_size_in_bytes / 1e9:.3g} GB for weights, "
            f"{memory.temp_size_in_bytes / 1e9:.3g} GB to compute and {output / 1e9:.3g} GB for the output",
        )
    return Program(compiled, int(min(_MAX_IN_FLIGHT, (room - fixed) // max(output, 1))), version)


def lower_rows(capture: Capture, layout: Layout, params: dict, shape: StepShape, tuning: Tuning) -> jax.stages.Lowered:
    """The program before its compilation."""
    specs = parameter_specs(params, capture.config, layout.model)
    weights = placed_parameters(params, capture.config, layout, tuning)
    height = shape.rows * layout.data
    row, by_row = (height, shape.row_tokens), layout.sharding("data")

    def input_of(shape: tuple[int, ...], dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=by_row)

    tokens = input_of(row)
    picks: Any = input_of((height, shape.width if capture.mode == "rows" else 0))
    if capture.mode in POOLS:
        picks = input_of(row, bool), input_of((height, shape.width, 2))
    with jax.default_matmul_precision(precision_of(params["embed"].dtype)):
        return _over_devices(capture, layout, specs, tuning).lower(weights, Rows(tokens, tokens, tokens), picks)


def placed_parameters(params: dict, config: DecoderConfig, layout: Layout, tuning: Tuning) -> dict:
    """The shapes of parameters as `place` puts them on the devices."""

    def placed(path, array, spec):
        as_bits = tuning.bf16_as_bits and path[0].key == "blocks" and array.dtype == jnp.bfloat16
        where = layout.place(path[-1].key, spec, len(array.shape))
        return jax.ShapeDtypeStruct(array.shape, jnp.uint16 if as_bits else array.dtype, sharding=where)

    return jax.tree.map_with_path(placed, params, parameter_specs(params, config, layout.model))


def precision_of(dtype: Any) -> str:
    """The precision of the products of weights of this type. On a TPU the default precision in fp32 is bf16."""
    return "highest" if dtype == jnp.float32 else "default"


def is_out_of_memory(error: Exception) -> bool:
    """Whether the compiler or a device found too little memory."""
    return "RESOURCE_EXHAUSTED" in str(error)


def _too_large(shape: StepShape, where: str, cause: str) -> Failure:
    return Failure(
        "model",
        f"Failed to fit a step of {shape.rows} x {shape.row_tokens} tokens per device of {where}: {cause}; lower "
        "max_seq_length, store fewer layers or sites, or take an accelerator with more memory",
    )


def _over_devices(capture: Capture, layout: Layout, specs: dict, tuning: Tuning):
    """compute_step over the mesh. Each device of the axis `data` runs the program of a single device, without
    communication; the devices of the axis `model` share one copy of the weights.

    No buffer is donated, because no output has an input's shape.
    """
    split = Split(layout.model)

    def compute(params, rows, picks):
        return compute_step(params, rows, picks, capture, tuning, split)

    by_row = PartitionSpec("data")
    output = PartitionSpec(None, "data")
    parts = PartitionSpec(None, "data", None, "model")

    def part_of(name: str) -> PartitionSpec:
        return parts if layout.model > 1 and capture.width(name) % layout.model == 0 else output

    outputs: dict[str, Any] = {"stats": output} if capture.with_device_stats else {}
    if capture.outputs:
        outputs["rows"] = {name: part_of(name) for name in capture.outputs}
    for kind in MOMENTS if capture.moments else ():
        outputs[kind] = {site: part_of(site) for site, _ in capture.moments}
    if any(capture.dtype_of(name) == "int8" for name in capture.outputs):
        outputs["scale"] = output
    return jax.jit(
        jax.shard_map(
            compute,
            mesh=layout.mesh,
            in_specs=(specs, by_row, by_row),
            out_specs=outputs,
            check_vma=False,
        )
    )
