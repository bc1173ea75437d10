"""Groups samples of similar length into batches of few shapes. Each shape is compiled once.

The shapes follow from the lengths alone. A batch is computed by one device, so the number of devices changes no byte.
"""

from dataclasses import dataclass

BATCH_TOKENS = 2048
SHORTEST_BATCH_TOKENS = 32
# Widths up to _FINE_ABOVE tokens are powers of two. Wider ones have a step at half of the way to the next power, and
# above _FINER_ABOVE tokens three steps: the longer a sample, the more each token of padding costs.
_FINE_ABOVE = 64
_FINER_ABOVE = 1024


@dataclass(frozen=True)
class Batch:
    """`rows` are positions in the list of samples; the array has `height` rows of `width` tokens, dummies included."""

    rows: tuple[int, ...]
    height: int
    width: int


def plan_batches(lengths: list[int], max_length: int) -> list[Batch]:
    """Groups samples by their lengths, longest first. Only the last batch has dummy rows."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    batches: list[Batch] = []
    begin = 0
    while begin < len(order):
        width = batch_width(lengths[order[begin]], max_length)
        height = batch_height(width)
        batches.append(Batch(tuple(order[begin : begin + height]), height, width))
        begin += height
    return batches


def batch_shapes(max_length: int) -> list[tuple[int, int]]:
    """Every (height, width) that plan_batches can choose, narrowest first."""
    widths = {batch_width(1, max_length)}
    while max(widths) < max_length:
        widths.add(batch_width(max(widths) + 1, max_length))
    return [(batch_height(width), width) for width in sorted(widths)]


def batch_height(width: int) -> int:
    return max(1, BATCH_TOKENS // width)


def batch_width(length: int, max_length: int) -> int:
    """The width of the narrowest batch that holds a sample of `length` tokens."""
    power = SHORTEST_BATCH_TOKENS
    while power < length:
        power *= 2
    step = power // 2 // (4 if power > _FINER_ABOVE else 2) if power > _FINE_ABOVE else power
    width = -(-length // step) * step
    # The longest shape ends at the limit itself, not at the next step.
    return min(width, -(-max_length // SHORTEST_BATCH_TOKENS) * SHORTEST_BATCH_TOKENS)
