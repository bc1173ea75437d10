"""The placement of a model on the chips of this host: the rows split over `data`, the weights over `model` if needed.

Data parallel is the rule: every device has all weights and runs the program of a single device. So the number of
devices changes no bit. Weights are split only when one device cannot hold them beside a step.
"""

import math
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import layout as device_layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...architecture.config import DecoderConfig
from ...failures import Failure

# The share of a device's memory for weights; a step, the runtime and fragmentation need the rest.
_USABLE = 0.92
_OUTPUT_PARAMETERS = {"wq", "bq", "wk", "bk", "wv", "bv", "gate", "b_gate", "up", "b_up", "sinks"}  # [L, out, ...]
_OUTPUT_PARAMETERS |= {"encode", "b", "g", "u", "theta"}  # of features, [n, features, ...]
_KV_PARAMETERS = {"wk", "bk", "wv", "bv", "k_norm"}
# [L, experts, F, D], and biases [L, experts, F]
_EXPERT_PARAMETERS = {"experts_gate", "b_experts_gate", "experts_up", "b_experts_up", "experts_down"}
_INPUT_PARAMETERS = {"wo", "down"}  # [L, out, in]: their biases are added once, after the sum over devices


@dataclass(frozen=True)
class Layout:
    """The devices: copies of the weights along `data`, parts of a copy along `model`."""

    mesh: Mesh  # axes data, model

    @property
    def data(self) -> int:
        return self.mesh.shape["data"]

    @property
    def model(self) -> int:
        return self.mesh.shape["model"]

    def sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def place(self, name: str, spec: PartitionSpec, rank: int) -> NamedSharding | device_layout.Format:
        """Where a stack of all layers lies. In the memory of a device, the axes of experts have the order that their
        kernel reads: the usual layout ends with the axis that pads least, and each step would copy the whole stack."""
        sharding = self.sharding(*spec)
        if name not in _EXPERT_PARAMETERS:
            return sharding
        return device_layout.Format(device_layout.Layout(tuple(range(rank))), sharding)


def memory_of(devices: list) -> int | None:
    """The memory of one device in bytes; None where the backend does not report it (CPU)."""
    stats = devices[0].memory_stats() or {}
    return stats.get("bytes_limit")


def layouts(params: dict, config: DecoderConfig, limit: int | None, devices: list) -> list[Layout]:
    """The layouts whose weights fit, fewest devices per copy of the weights first.

    params: arrays or their shapes, as parameter_shapes gives them. limit: bytes of one device, None when unknown.
    Raises Failure("model") with the sizes when the weights do not fit.
    """
    ways = [n for n in range(1, len(devices) + 1) if len(devices) % n == 0 and can_split(config, n)]
    weights = {n: weight_bytes(params, config, n) for n in ways}
    room = float("inf") if limit is None else _USABLE * limit
    if weights[ways[-1]] > room:
        split = ", ".join(f"{_gb(size)} split over {n}" for n, size in weights.items() if n > 1)
        raise Failure(
            "model",
            f"Failed to fit the model into {len(devices)} {devices[0].device_kind} of {_gb(limit or 0)}: its "
            f"weights are {_gb(weights[1])}{', on each device ' if split else ''}{split} "
            f"(its {config.num_heads} heads and {config.num_kv_heads} key/value heads "
            "limit the split); take an accelerator with more memory or more chips, lower the deepest of `layers`, "
            "or set compute_dtype to bf16",
        )
    fitting = [n for n in ways if weights[n] <= room]
    return [Layout(Mesh(np.array(devices).reshape(-1, n), ("data", "model"))) for n in fitting]


def can_split(config: DecoderConfig, ways: int) -> bool:
    """Whether every device gets whole heads. Key/value heads are split too, or shared by devices that need the same."""
    shared = config.num_kv_heads % ways == 0 or ways % config.num_kv_heads == 0
    return config.num_heads % ways == 0 and shared


def parameter_axes(name: str, shape: tuple[int, ...], config: DecoderConfig, ways: int) -> tuple[str | None, ...]:
    """The axis of a parameter that is split over `model`; none where the axis does not divide."""
    outputs = _OUTPUT_PARAMETERS | ({"q_norm", "k_norm"} if config.qk_norm == "together" else set())
    if name in ("embed", "positions", "head"):  # [V, D]
        axis = 1
    elif name in outputs and not (name in _KV_PARAMETERS and config.num_kv_heads % ways):
        axis = 1
    elif name in _INPUT_PARAMETERS | _EXPERT_PARAMETERS:
        axis = 2
    else:
        return ()
    return () if shape[axis] % ways else (*(None,) * axis, "model")


def weight_bytes(params: dict, config: DecoderConfig, ways: int) -> int:
    """The bytes of the weights per device, split `ways` ways."""
    total = 0
    for path, array in jax.tree.leaves_with_path(params):
        parts = ways if parameter_axes(path[-1].key, array.shape, config, ways) else 1
        total += math.prod(array.shape) * array.dtype.itemsize // parts
    return total


def parameter_specs(params: dict, config: DecoderConfig, ways: int) -> dict:
    """The PartitionSpec of every parameter, in the tree of `params`."""
    return jax.tree.map_with_path(
        lambda path, array: PartitionSpec(*parameter_axes(path[-1].key, array.shape, config, ways)), params
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
