"""The operations of a decoder's blocks."""

from ..model.config import DecoderConfig


def operations_of(config: DecoderConfig, depth: int, width: int) -> float:
    """Multiplications and additions for one row of `width` tokens through `depth` blocks.

    2 for each weight and token, and 4 * heads * head size * width for each token's scores and their sum. Embeddings
    are looked up; logits are never computed.
    """
    heads, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    weights = config.d_model * (2 * heads + 2 * keys + 3 * config.d_ff)
    return depth * width * (2 * weights + 4 * heads * width)
