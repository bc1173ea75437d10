"""The operations of a decoder's blocks, and the speed that follows from the time of a step."""

from math import prod

from ..architecture.sites import Capture
from .accelerators import Device


def operations_of(capture: Capture, width: int) -> float:
    """Multiplications and additions for one row of `width` tokens through the computed blocks, and for its reductions.

    2 for each weight and token, and 2 * heads * head size * width for each token's scores and their sum: a token sees
    half of the row on average. Embeddings are looked up; logits are never computed. Reductions count for all tokens.
    """
    config, depth = capture.config, capture.depth
    heads, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention, experts = config.d_model * (2 * heads + 2 * keys), config.experts
    dense = config.d_model * config.d_ff * (3 if config.gated else 2)
    mixtures = sum(experts.layers[:depth]) if experts else 0
    mixture = config.d_model * (3 * experts.per_token * experts.d_ff + experts.count) if experts else 0
    weights = depth * attention + (depth - mixtures) * dense + mixtures * mixture
    weights += sum(prod(size) for each in capture.reductions for size in each.parameters.values())
    return width * (2 * weights + depth * 2 * heads * width)


def speed_of(
    milliseconds: float, rows: int, row_tokens: int, capture: Capture, device: Device, devices: int
) -> dict[str, float]:
    """The figures of a step in which `devices` devices compute `rows` full rows, by their names in reports."""
    seconds = milliseconds / 1e3
    operations = rows * operations_of(capture, row_tokens)
    return {
        "estimated_ms": round(milliseconds, 3),
        "tokens_per_s": round(rows * row_tokens / seconds),
        "share_of_peak": round(operations / seconds / (devices * device.peak_flops), 3),
    }
