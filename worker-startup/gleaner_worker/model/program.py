"""Compiles the program of one batch shape over all devices, and checks that it fits into their memory."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ..failures import Failure
from .capture import Capture, capture
from .mesh import Layout

# Every value is rounded where the decoder and capture round it. Otherwise XLA leaves out different roundings on one
# device and on several, and the bits differ.
_COMPILER_OPTIONS: dict[str, str | bool] = {"xla_allow_excess_precision": False}
_MAX_IN_FLIGHT = 3  # one is computed, one waits, one is copied to the host


@dataclass(frozen=True)
class Program:
    run: jax.stages.Compiled  # (params, token_ids, picks, counts), as capture takes them, on the devices
    in_flight: int  # batches that the devices' memory holds at once


def compile_batch(
    what: Capture, layout: Layout, params: dict, shape: tuple[int, int], rows: int, limit: int | None, where: str
) -> Program:
    """shape: height and width of one device's batch. rows: W of the rows mode. limit: bytes of one device, when known.

    Raises Failure("model") when the weights and one batch do not fit; `where` names the model and the limit on its
    samples.
    """
    height, width = shape[0] * layout.data, shape[1]
    picks = {"all": ((height, 0), jnp.int32), "rows": ((height, rows), jnp.int32), "mean": ((height, width), bool)}
    by_row = layout.sharding("data")
    inputs = [((height, width), jnp.int32), picks[what.mode], ((height,), jnp.int32)]
    arrays = [jax.ShapeDtypeStruct(*entry, sharding=by_row) for entry in inputs]
    try:
        # On a TPU the default precision of an fp32 product is bf16.
        with jax.default_matmul_precision("highest" if params["embed"].dtype == jnp.float32 else "default"):
            compiled = _over_devices(what, layout).lower(params, *arrays).compile(_COMPILER_OPTIONS)
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise _too_large(shape, where, "the compiler finds no room for it") from error
    memory = compiled.memory_analysis()
    if limit is None or memory is None:
        return Program(compiled, _MAX_IN_FLIGHT)
    fixed, output = memory.argument_size_in_bytes + memory.temp_size_in_bytes, memory.output_size_in_bytes
    if fixed + output > limit:
        raise _too_large(
            shape,
            where,
            f"a device has {limit / 1e9:.3g} GB, and needs {memory.argument_size_in_bytes / 1e9:.3g} GB for weights, "
            f"{memory.temp_size_in_bytes / 1e9:.3g} GB to compute and {output / 1e9:.3g} GB for what is stored",
        )
    return Program(compiled, int(min(_MAX_IN_FLIGHT, (limit - fixed) // max(output, 1))))


def is_out_of_memory(error: Exception) -> bool:
    return "RESOURCE_EXHAUSTED" in str(error)


def _too_large(shape: tuple[int, int], where: str, cause: str) -> Failure:
    return Failure(
        "model",
        f"Failed to fit a batch of {shape[0]} x {shape[1]} tokens per device of {where}: {cause}; lower "
        "max_seq_length, store fewer layers or sites, or take an accelerator with more memory",
    )


def _over_devices(what: Capture, layout: Layout):
    """capture, with the batch axis split by hand: each device runs the program of a single device, without
    communication.

    Only the split of the weights is left to the compiler. Devices that share one copy of the weights each hold every
    site whole, so any of them can copy it to the host. No buffer is donated, because no output has an input's shape.
    """

    def whole(x):
        mesh = jax.sharding.get_abstract_mesh()
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(None, None, None)))

    def capture_batch(params, token_ids, picks, counts):
        return capture(params, token_ids, picks, counts, what, whole if layout.model > 1 else lambda x: x)

    by_row, output = PartitionSpec("data"), PartitionSpec(None, "data")
    split = jax.shard_map(
        capture_batch,
        mesh=layout.mesh,
        in_specs=(PartitionSpec(), by_row, by_row, by_row),
        out_specs=output,
        axis_names={"data"},
        check_vma=False,
    )
    return jax.jit(split, out_shardings=layout.sharding(None, "data"))
