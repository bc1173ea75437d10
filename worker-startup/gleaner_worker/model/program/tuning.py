"""The settings of a program that depend on the chip, chosen once from the devices of the mesh."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Tuning:
    """The settings of one kind of chip. Hashable: static under jit. All chips share every other part of a program."""

    attention: str  # "splash", the kernel of JAX for TPUs, or "blocks" of queries and keys
    query_block: int  # tokens of a block of queries, and of keys, in the "blocks" attention
    step_tokens: int  # of one device in a step; a row of more tokens makes a longer step
    decoded_rows: int = 64  # of one device in a batch of generated tokens, at most
    # Computes the last product of an MLP alone. Otherwise XLA fuses it with another, which is slow in long steps.
    mlp_barrier: bool = False
    bf16_as_bits: bool = False  # see cpu.py
    interpret: bool = False  # runs the kernel without a TPU, for tests


CPU = Tuning("blocks", query_block=128, step_tokens=2048, decoded_rows=8, bf16_as_bits=True)
TPU = Tuning("splash", query_block=256, step_tokens=2048)
# By device kind, what differs from TPU from each d_model on: the fastest of bench/tpu/sweep.jsonl.
_V5P = {0: {"step_tokens": 8192}, 2304: {"step_tokens": 4096}}
_BY_WIDTH: dict[str, dict[int, dict[str, Any]]] = {
    "TPU v5": _V5P,
    "TPU v5p": _V5P,
    "TPU v6 lite": {2560: {"mlp_barrier": True}},
    "TPU7x": {0: {"step_tokens": 8192}},
}


def tuning_of(device: Any, compute_dtype: str, d_model: int) -> Tuning:
    """The settings for a mesh of such devices.

    The kernel multiplies in bf16, so fp32 runs keep the blocks. compute_dtype: bf16 or fp32.
    """
    if device.platform == "cpu":
        return CPU
    attention = "splash" if device.platform == "tpu" and compute_dtype == "bf16" else "blocks"
    widths = _BY_WIDTH.get(device.device_kind, {})
    least = max((width for width in widths if width <= d_model), default=None)
    return replace(TPU, attention=attention, **({} if least is None else widths[least]))
