"""The decoder of every family: the residual stream, and the sums that each block adds to it.

Computes no logits, and no block after the deepest requested one. Numerics follow transformers: weights, activations
and the residual stream in one dtype; norms, rotary embeddings and softmax in fp32. Products are summed in fp32.

Runs inside a shard_map. Devices that share one copy of the weights have whole heads and a part of the MLP each. They
add their parts of a sum in the dtype of the weights.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...architecture.config import DecoderConfig
from ...architecture.sites import SITES, Capture
from .attention import Past
from .block import READ, make_blocks, run_block
from .norms import norm
from .rows import Rows
from .split import Split
from .tuning import Tuning

_WHOLE_BLOCK = {"resid_post", "mlp_out"}  # the sites that need the second half of a block
OF_LOGITS = {"top_tokens", "top_logprobs", "loss"}
LOGIT_TOKENS = 256  # whose logits memory holds at once
_MAX_RANGES = 4  # of kept layers and of other layers; each range is compiled by itself


def run_blocks(
    params: dict,
    rows: Rows,
    capture: Capture,
    emit: Callable[[dict[str, jax.Array], Any, tuple[int, ...]], Any],
    tuning: Tuning,
    split: Split = Split(),  # noqa: B008 - immutable
    picks: jax.Array | None = None,
    past: Past | None = None,
    reads: bool = False,
) -> list[tuple[tuple[int, ...], Any]]:
    """Runs the blocks up to the last site of `capture`; returns pieces of (layers, result of `emit` for these layers).
    The first axis of a result is the layer.

    params: {"embed": [V, D], "blocks": {name: [L, ...]}}, and for the end of the model "final_norm", with at least
    `capture.depth` blocks; this device's part.
    emit: receives {site: [R, T, D]} for the computed sites of `capture`, the number of the layer, and the layers of its
    scan whose results are kept; of blocks inside of the scan, of the embeddings and the end outside. A block without a
    site, such as a dense block without router_logits, gives zeros for it.
    picks: int32 [R, W], the tokens of each row whose logits are computed, so that OF_LOGITS are [R, W, width]; None
    for all tokens.
    past: for rows of one token, the tokens before it.
    reads: `emit` receives READ too, of every block.
    """
    config, sites = capture.config, capture.computed
    at = [frozenset([READ]) if reads else capture.at(layer) for layer in range(config.num_layers)]
    embedded, x = _embed(params, rows, config, split)
    blocks = make_blocks(params["blocks"], rows, capture, tuning, split, past, reads)
    pieces: list[tuple[tuple[int, ...], Any]] = []

    def once(layer: int, found: dict[str, jax.Array]) -> None:
        pieces.append(((layer,), jax.tree.map(lambda y: y[None], emit(found, layer, (layer,)))))

    def step(x, layer, kept):
        after, found = run_block(x, layer, blocks)
        return after, emit(found, layer, kept) if kept else None

    if "embeddings" in sites:
        once(0, {"embeddings": embedded})
    # If no site needs its second half, the deepest block stays outside of the scan, so that XLA drops that half.
    whole = bool(_WHOLE_BLOCK & sites) or bool(capture.end)
    deepest = max((layer for layer, kept in enumerate(at) if kept), default=-1)
    for first, end, kept in layer_ranges(at, config.num_layers if capture.end else deepest + whole):
        x, out = jax.lax.scan(partial(step, kept=kept), x, jnp.arange(first, end))
        if kept:
            chosen = np.asarray(kept) - first
            pieces.append((kept, out if len(kept) == end - first else jax.tree.map(lambda y, at=chosen: y[at], out)))
    if deepest >= 0 and not whole:
        once(deepest, run_block(x, deepest, blocks)[1])
    if capture.end:
        last = norm(x, "final_norm", params, config)
        found = {"final_norm": last} | _next_tokens(last, params, rows, capture, split, picks)
        once(config.num_layers - 1, {site: found[site] for site in SITES if site in found and site in sites})
    return pieces


def _next_tokens(x, params: dict, rows: Rows, capture: Capture, split: Split, picks) -> dict[str, jax.Array]:
    """fp32 [R, W, width]: the sites of the logits of x [R, T, D]. Memory holds the logits of a few tokens."""
    if not OF_LOGITS & capture.computed:
        return {}
    following = jnp.roll(rows.token_ids, -1, axis=1)[..., None]
    is_last = (rows.segments != jnp.roll(rows.segments, -1, axis=1)).at[:, -1].set(True)[..., None]
    if picks is not None:
        x, following, is_last = (pick_tokens(y, picks) for y in (x, following, is_last))

    def of(tokens):
        h, target, ends = tokens
        logits = logits_of(h, params, capture.config, split)
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        top, numbers = jax.lax.top_k(logits, capture.top_k)
        loss = total - jnp.take_along_axis(logits, target, axis=-1)
        return numbers.astype(jnp.float32), top - total, jnp.where(ends, 0, loss)

    count = x.shape[0] * x.shape[1]
    size = min(LOGIT_TOKENS, count)
    blocks = [
        jnp.pad(y.reshape(count, -1), ((0, -count % size), (0, 0))).reshape(-1, size, y.size // count)
        for y in (x, following, is_last)
    ]
    found = zip(("top_tokens", "top_logprobs", "loss"), jax.lax.map(of, tuple(blocks)), strict=True)
    return {site: y.reshape(-1, y.shape[-1])[:count].reshape(*x.shape[:2], -1) for site, y in found}


def pick_tokens(x, picks):
    """x [R, T, D] -> [R, W, D]: the tokens picks [R, W] of each row."""
    return jnp.take_along_axis(x, picks[:, :, None], axis=1, mode="clip")


def logits_of(x: jax.Array, params: dict, config: DecoderConfig, split: Split) -> jax.Array:
    """fp32 [M, V]: the logits of x [M, D], the output of the final norm."""
    head = jnp.asarray(params.get("head", params["embed"]))  # [V, D]
    logits = jnp.einsum("md,vd->mv", split.own(x, 1, head.shape[1]), head, preferred_element_type=jnp.float32)
    logits = split.total(logits, head.shape[1], config.d_model, jnp.float32) * config.logits_scale
    if config.logits_softcap is None:
        return logits
    return jnp.tanh(logits / config.logits_softcap) * config.logits_softcap


def layer_ranges(at: Sequence[frozenset[str]], end: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Cuts 0..end into ranges (first, end, kept layers), one scan each, so that layers that are not kept emit nothing.

    at: what each layer gives, as Capture.at; a range has layers that give the same. Each range is compiled. With more
    than a few ranges it is faster to emit for all layers and to choose.
    """
    ranges: list[tuple[int, int, tuple[int, ...]]] = []
    for layer in range(end):
        kept = (layer,) if at[layer] else ()
        if ranges and at[layer - 1] == at[layer]:
            ranges[-1] = (ranges[-1][0], layer + 1, ranges[-1][2] + kept)
        else:
            ranges.append((layer, layer + 1, kept))
    return ranges if len(ranges) <= _MAX_RANGES else [(0, end, tuple(layer for layer in range(end) if at[layer]))]


def _embed(params: dict, rows: Rows, config: DecoderConfig, split: Split) -> tuple[jax.Array, jax.Array]:
    """[R, T, D]: the embeddings of the tokens, and the stream that enters the first block."""

    def whole(x):
        x = split.gather(x, config.d_model)
        return x if config.embed_scale is None else x * jnp.asarray(config.embed_scale, x.dtype)

    tokens = jnp.asarray(params["embed"])[rows.token_ids]
    if not config.learned_positions:
        stream = whole(tokens)
        return stream, stream
    return whole(tokens), whole(tokens + jnp.asarray(params["positions"])[rows.positions])
