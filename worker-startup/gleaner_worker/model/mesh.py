"""The placement of a model on the chips of this host: the batch split over `data`, the weights over `model` if needed.

Data parallel is the rule: every device has all weights and computes batches of the shapes that a single device would
compute. So the number of devices changes no bit. Weights are split only when one device cannot hold them.
"""

from dataclasses import dataclass

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..failures import Failure
from .capture import Capture
from .config import DecoderConfig

# The share of a device's memory for weights and one batch; the runtime and fragments need the rest.
_USABLE = 0.92
_OUTPUT_PARAMETERS = {"wq", "bq", "wk", "bk", "wv", "bv", "gate", "b_gate", "up", "b_up"}  # [L, out, ...]
_KV_PARAMETERS = {"wk", "bk", "wv", "bv"}
_INPUT_PARAMETERS = {"wo", "down"}  # [L, out, in]: their biases are added once, after the sum over devices


@dataclass(frozen=True)
class Layout:
    mesh: Mesh  # axes data, model

    @property
    def data(self) -> int:
        return self.mesh.shape["data"]

    @property
    def model(self) -> int:
        return self.mesh.shape["model"]

    def sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def memory_of(devices: list) -> int | None:
    """The memory of one device; None where the backend does not report it (CPU)."""
    stats = devices[0].memory_stats() or {}
    return stats.get("bytes_limit")


def choose_layout(
    params: dict, what: Capture, shapes: list[tuple[int, int]], limit: int | None, devices: list
) -> Layout:
    """The fewest devices per copy of the weights that hold them beside the largest of `shapes` (per copy).

    limit: bytes of one device, None when unknown. Where only all devices together hold the weights, they share them,
    and the compiler decides whether the largest batch fits. Raises Failure("model") with the sizes when the weights do
    not fit.
    """
    ways = [n for n in range(1, len(devices) + 1) if len(devices) % n == 0 and can_split(what.config, n)]
    weights = {n: weight_bytes(params, what.config, n) for n in ways}
    room = float("inf") if limit is None else _USABLE * limit
    if weights[ways[-1]] > room:
        split = ", ".join(f"{_gb(size)} split over {n}" for n, size in weights.items() if n > 1)
        raise Failure(
            "model",
            f"Failed to fit the model into {len(devices)} {devices[0].device_kind} of {_gb(limit or 0)}: its "
            f"weights are {_gb(weights[1])}{', on each device ' if split else ''}{split} "
            f"(its {what.config.num_heads} heads and {what.config.num_kv_heads} key/value heads "
            "decide over how many); take an accelerator with more memory or more chips, ask for less deep `layers`, "
            "or for compute_dtype bf16",
        )
    fitting = [n for n in ways if weights[n] + batch_bytes(what, shapes, n) <= room]
    chosen = fitting[0] if fitting else ways[-1]
    return Layout(Mesh(np.array(devices).reshape(-1, chosen), ("data", "model")))


def can_split(config: DecoderConfig, ways: int) -> bool:
    """Whether every device gets whole heads. Key/value heads are split too, or shared by devices that need the same."""
    shared = config.num_kv_heads % ways == 0 or ways % config.num_kv_heads == 0
    return config.num_heads % ways == 0 and shared


def parameter_axes(name: str, shape: tuple[int, ...], config: DecoderConfig, ways: int) -> tuple[str | None, ...]:
    """The axis of a parameter that is split over `model`; none where the axis does not divide."""
    if name == "embed":  # [V, D]
        axis = 1
    elif name in _OUTPUT_PARAMETERS and not (name in _KV_PARAMETERS and config.num_kv_heads % ways):
        axis = 1
    elif name in _INPUT_PARAMETERS:
        axis = 2
    else:
        return ()
    return () if shape[axis] % ways else (*(None,) * axis, "model")


def weight_bytes(params: dict, config: DecoderConfig, ways: int) -> int:
    """The bytes of the weights per device, split `ways` ways."""
    return sum(
        array.nbytes // (ways if parameter_axes(name, array.shape, config, ways) else 1)
        for name, array in _named(params)
    )


def batch_bytes(what: Capture, shapes: list[tuple[int, int]], ways: int) -> int:
    """An estimate of the memory that the largest batch needs per device; the compiler later computes it exactly."""
    config = what.config
    most = 0
    for height, width in shapes:
        tokens = height * width
        stream = tokens * config.d_model * 4 * 6
        heads = tokens * (config.num_heads + 2 * config.num_kv_heads) * config.head_dim * 4
        scores = height * config.num_heads * min(width, max(256, width // 32)) * width * 4 * 2
        hidden = tokens * config.d_ff * 4 * 2
        output = tokens * what.row_bytes
        most = max(most, stream + output + (heads + scores + hidden) // ways)
    return most


def place(params: dict, config: DecoderConfig, layout: Layout) -> dict:
    """Moves the numpy arrays of `params` to the devices one by one, and empties it: the host never holds two copies.

    On a CPU the blocks' bf16 becomes its bits, uint16: see decoder._of_layer.
    """
    as_bits = layout.mesh.devices.flat[0].platform == "cpu"

    def move(holder: dict, name: str) -> jax.Array:
        array = holder.pop(name)
        if as_bits and name != "embed" and array.dtype == ml_dtypes.bfloat16:
            array = array.view(np.uint16)
        moved = jax.device_put(array, layout.sharding(*parameter_axes(name, array.shape, config, layout.model)))
        return moved.block_until_ready()

    blocks = params.pop("blocks")
    return {"blocks": {name: move(blocks, name) for name in list(blocks)}, "embed": move(params, "embed")}


def _named(params: dict) -> list[tuple[str, np.ndarray]]:
    return [("embed", params["embed"]), *params["blocks"].items()]


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
