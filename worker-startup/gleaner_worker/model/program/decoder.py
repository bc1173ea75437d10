"""The decoder of every family: the residual stream, and the sums that each block adds to it.

Computes no logits, and no block after the deepest requested one. Numerics follow transformers: weights, activations
and the residual stream in one dtype; norms, rotary embeddings and softmax in fp32. Products are summed in fp32.

Runs inside a shard_map. Devices that share one copy of the weights have whole heads and a part of the MLP each. They
add their parts of a sum in the dtype of the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from ...architecture.config import DecoderConfig, Experts
from ...architecture.sites import Capture
from ..weights.cpu import from_bits
from ..weights.tensors import OF_DENSE, OF_MIXTURE, OF_MLP, layers_with
from .attention import Past, attend, attend_past
from .rotate import angles, rotate
from .tuning import Tuning

_WHOLE_BLOCK = {"resid_post", "mlp_out"}  # the sites that need the second half of a block
_OF_MLPS = {"mlp_neurons", "router_logits", "experts"}  # that one kind of MLP has
OF_LOGITS = {"top_tokens", "top_logprobs", "loss"}
# Beside the sites of a block: the keys and values that attention reads, a pair of [R, K, T, H] of this device's heads.
# Sites are what a user stores, and are taken before a clip, a norm or a rotation.
READ = "keys and values"
LOGIT_TOKENS = 256  # whose logits memory holds at once
_MAX_RANGES = 4  # of kept layers and of other layers; each range is compiled by itself
_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}


class Rows(NamedTuple):
    """Packed rows of T tokens, as arrays or their shapes: samples one after another, then padding."""

    token_ids: Any  # int32 [R, T]
    segments: Any  # int32 [R, T]: 1 for the first sample of a row, 2 for the next; 0 for padding
    positions: Any  # int32 [R, T]: of the token in its sample


@dataclass(frozen=True)
class Split:
    """The devices that share one copy of the weights, along the mesh axis `model`."""

    ways: int = 1

    def total(self, x: jax.Array, part: int, whole: int, dtype) -> jax.Array:
        """The sum of x over the devices, each with `part` of `whole` terms; x itself where `part` is `whole`."""
        return jax.lax.psum(x.astype(dtype), "model") if part < whole else x

    def gather(self, x: jax.Array, whole: int) -> jax.Array:
        """x with all `whole` values of its last axis."""
        return jax.lax.all_gather(x, "model", axis=x.ndim - 1, tiled=True) if x.shape[-1] < whole else x

    def all_heads(self, x: jax.Array, count: int) -> jax.Array:
        """x [R, heads, T, H] with all `count` heads; devices may share heads."""
        if x.shape[1] == count:
            return x
        heads = jax.lax.all_gather(x, "model", axis=1, tiled=True)
        return heads[:, :: heads.shape[1] // count]

    def own(self, x: jax.Array, axis: int, count: int) -> jax.Array:
        """The `count` entries along `axis` that this device uses; devices may share entries."""
        if x.shape[axis] == count:
            return x
        parts = x.shape[axis] // count
        begin = jax.lax.axis_index("model") * parts // self.ways * count
        return jax.lax.dynamic_slice_in_dim(x, begin, count, axis)


def run_blocks(
    params: dict,
    rows: Rows,
    capture: Capture,
    emit: Callable[[dict[str, jax.Array]], Any],
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
    emit: receives {site: [R, T, D]} for the sites of `capture` inside the scan; of blocks, outside of the scan the
    embeddings and the end. A block without a site, such as a dense block without router_logits, gives zeros for it.
    picks: int32 [R, W], the tokens of each row whose logits are computed, so that OF_LOGITS are [R, W, width]; None
    for all tokens.
    past: for rows of one token, the tokens before it.
    reads: `emit` receives READ too, of every block.
    """
    config, sites, layers = capture.config, set(capture.sites), capture.blocks
    if reads:
        layers = tuple(range(config.num_layers))
    embedded, x = _embed(params, rows, config, split)
    block = _block_runner(params["blocks"], rows, capture, tuning, split, past, reads)
    pieces: list[tuple[tuple[int, ...], Any]] = []

    def once(layer: int, found: dict[str, jax.Array]) -> None:
        pieces.append(((layer,), jax.tree.map(lambda y: y[None], emit(found))))

    def keeping(x, layer):
        after, found = block(x, layer)
        return after, emit(found)

    def passing(x, layer):
        return block(x, layer)[0], None

    if "embeddings" in sites:
        once(0, {"embeddings": embedded})
    # If no site needs its second half, the deepest block stays outside of the scan, so that XLA drops that half.
    whole = bool(_WHOLE_BLOCK & sites) or bool(capture.end)
    scanned = config.num_layers if capture.end else max(layers, default=-1) + whole
    for first, end, kept in layer_ranges(layers, scanned):
        x, out = jax.lax.scan(keeping if kept else passing, x, jnp.arange(first, end))
        if kept:
            chosen = np.asarray(kept) - first
            pieces.append((kept, out if len(kept) == end - first else jax.tree.map(lambda y, at=chosen: y[at], out)))
    if layers and not whole:
        once(layers[-1], block(x, layers[-1])[1])
    if capture.end:
        last = _norm(x, "final_norm", params, config)
        found = {"final_norm": last} | _next_tokens(last, params, rows, capture, split, picks)
        once(config.num_layers - 1, {site: found[site] for site in capture.sites if site in found})
    return pieces


def _next_tokens(x, params: dict, rows: Rows, capture: Capture, split: Split, picks) -> dict[str, jax.Array]:
    """fp32 [R, W, width]: the sites of the logits of x [R, T, D]. Memory holds the logits of a few tokens."""
    if not OF_LOGITS & set(capture.sites):
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


def layer_ranges(layers: tuple[int, ...], end: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Cuts 0..end into ranges (first, end, kept layers), one scan each, so that layers that are not kept emit nothing.

    Each range is compiled. With more than a few ranges it is faster to emit for all layers and to choose.
    """
    ranges: list[tuple[int, int, tuple[int, ...]]] = []
    for layer in range(end):
        kept = (layer,) if layer in layers else ()
        if ranges and bool(ranges[-1][2]) == bool(kept):
            ranges[-1] = (ranges[-1][0], layer + 1, ranges[-1][2] + kept)
        else:
            ranges.append((layer, layer + 1, kept))
    return ranges if len(ranges) <= _MAX_RANGES else [(0, end, tuple(layer for layer in layers if layer < end))]


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


def _block_runner(
    blocks: dict, rows: Rows, capture: Capture, tuning: Tuning, split: Split, past: Past | None, reads: bool
) -> Callable:
    """A function (x [R, T, D], layer) -> the stream after that block and its sites, for a layer number that is known
    only in the scan."""
    config, sites = capture.config, {*capture.sites, *([READ] if reads else [])}
    length = rows.token_ids.shape[1] if past is None else past.positions.shape[1]
    # Gathered once, for all layers and heads.
    cos, sin = angles(config.ropes, config.rotary_dim, rows.segments, rows.positions, length)
    layer_ropes = jnp.asarray(config.layer_ropes)
    windows = [min(window, length) for window in config.windows]  # longer windows are full attention
    different = sorted(set(windows))
    kinds = jnp.asarray([different.index(window) for window in windows])
    attentions = [
        lambda q, k, v, sinks, window=window: attend(
            q, k, v, rows.segments, sinks, window=window, softcap=config.attention_softcap, tuning=tuning
        )
        for window in different
    ]

    def attend_to(past: Past, layer) -> Callable:
        distance = rows.positions - past.positions
        seen = (past.positions >= 0) & (distance < jnp.asarray(config.windows)[layer])
        past_k, past_v = (jax.lax.dynamic_index_in_dim(each, layer, keepdims=False) for each in past[:2])
        return lambda q, k, v, sinks: attend_past(q, k, v, past_k, past_v, seen, sinks, config.attention_softcap)

    own_places = {name: _places(config, name) for name in blocks if name in OF_MLP} if config.experts else {}

    def at(layer, is_used: Callable[[str], bool]) -> dict[str, jax.Array]:
        # Indexed here instead of sliced before the scan, because a slice copies the weights of a whole range of layers.
        return {
            name: from_bits(
                jax.lax.dynamic_index_in_dim(
                    stack, own_places[name][layer] if name in own_places else layer, keepdims=False
                )
            )
            for name, stack in blocks.items()
            if is_used(name)
        }

    def dense(h, layer):
        out, found = _mlp(h, at(layer, lambda name: name in OF_DENSE), config, tuning, split)
        return out, only(found, h)

    def mixture(h, layer):
        out, found = _mixture(h, at(layer, lambda name: name in OF_MIXTURE), config, split)
        return out, only(found, h)

    def only(found: dict[str, Callable], h) -> dict[str, jax.Array]:
        """The wanted sites of an MLP; zeros for those of the other kind of MLP."""
        wanted = sites & (_OF_MLPS if len(mlps) > 1 else found.keys())
        return {
            site: found[site]().astype(jnp.float32)
            if site in found
            else jnp.zeros((*h.shape[:2], capture.width(site)), jnp.float32)
            for site in sorted(wanted)
        }

    is_mixture = jnp.asarray(config.experts.layers if config.experts else (), jnp.int32)
    mlps = [form for form, name in ((dense, "down"), (mixture, "experts_down")) if name in blocks]

    def run(x, layer):
        p = at(layer, lambda name: name not in OF_MLP)
        rope = layer_ropes[layer]
        attention = attentions[0] if len(attentions) == 1 else partial(jax.lax.switch, kinds[layer], attentions)
        attention = attention if past is None else attend_to(past, layer)
        mlp = mlps[0] if len(mlps) == 1 else partial(jax.lax.switch, is_mixture[layer], mlps)
        return _block(x, p, cos[rope], sin[rope], attention, lambda h: mlp(h, layer), layer, config, sites, split)

    return run


def _block(x, p, cos, sin, attention, mlp, layer, config: DecoderConfig, sites: set[str], split: Split):
    """The stream after the block, and the block's own `sites`.

    Values stay in fp32 between two products, and are rounded to the weights' dtype once.
    """
    norm = partial(_norm, p=p, config=config)

    def adds(y, post_norm: str):
        """What attention or MLP adds to the stream."""
        y = norm(y, post_norm) if config.post_norms else y
        return (y if config.residual_scale == 1 else y * config.residual_scale).astype(x.dtype)

    h = norm(x, "norm1") if config.pre_norms else x
    kv_heads = max(1, config.num_kv_heads // split.ways)
    q = _heads(h, p["wq"], p.get("bq"), config)  # [R, N, T, H]
    k, v = (_heads(h, *_own_heads(p, name, kv_heads, config, split), config) for name in ("k", "v"))
    projected = q, k, v
    if config.qk_norm == "head":
        q, k = norm(q, "q_norm"), norm(k, "k_norm")
    elif config.qk_norm:
        own_norm = split.own(p["k_norm"], 0, kv_heads * config.head_dim)
        q, k = (_norm_together(y, weight, config, split) for y, weight in ((q, p["q_norm"]), (k, own_norm)))
    if config.clip_qkv is not None:
        q, k, v = (jnp.clip(y, -config.clip_qkv, config.clip_qkv) for y in (q, k, v))
    scale = config.attention_scale / (layer + 1) if config.scale_by_layer else config.attention_scale
    scaled_q, rot_k = rotate(q, cos, sin, x.dtype, scale), rotate(k, cos, sin, x.dtype)
    read = rot_k, v.astype(x.dtype)
    rows = attention(scaled_q, *read, p.get("sinks"))
    wo = p["wo"].reshape(config.d_model, -1, config.head_dim)
    attn_out = jnp.einsum("rnth,dnh->rtd", rows, wo, preferred_element_type=jnp.float32)
    attn_out = _plus(split.total(attn_out, wo.shape[1], config.num_heads, x.dtype), p.get("bo"))
    attn_out = adds(attn_out, "post1")
    mid = x + attn_out
    into = x if config.is_parallel else mid
    mlp_in = norm(into, "norm2") if config.pre_norms else into
    mlp_out, of_mlp = mlp(mlp_in)
    mlp_out = adds(mlp_out, "post2")
    after = mid + mlp_out

    def by_token(y, heads: int):
        """[R, N, T, H] of this device's heads -> [R, T, heads * H] of all heads."""
        return jnp.moveaxis(split.all_heads(y.astype(x.dtype), heads), 1, 2).reshape(*x.shape[:2], -1)

    found = {
        "resid_pre": lambda: x,
        "resid_mid": lambda: mid,
        "resid_post": lambda: after,
        "attn_out": lambda: attn_out,
        "mlp_out": lambda: mlp_out,
        "q": lambda: by_token(projected[0], config.num_heads),
        "k": lambda: by_token(projected[1], config.num_kv_heads),
        "v": lambda: by_token(projected[2], config.num_kv_heads),
        "rot_q": lambda: by_token(rotate(q, cos, sin, x.dtype), config.num_heads),
        "rot_k": lambda: by_token(rot_k, config.num_kv_heads),
        "attn_z": lambda: by_token(rows, config.num_heads),
        "mlp_in": lambda: mlp_in,
        READ: lambda: read,
    }
    return after, {site: of() for site, of in found.items() if site in sites} | of_mlp


def _places(config: DecoderConfig, name: str) -> jax.Array:
    """int32 [layers]: the place of each layer in the stack of a parameter that not all layers have."""
    return jnp.asarray([len(layers_with(config, name, layer)) for layer in range(config.num_layers)])


def _own_heads(p: dict, name: str, heads: int, config: DecoderConfig, split: Split):
    """The weights and biases of this device's key/value heads."""
    size = heads * config.head_dim
    bias = p.get(f"b{name}")
    return split.own(p[f"w{name}"], 0, size), None if bias is None else split.own(bias, 0, size)


def _heads(x, w, bias, config: DecoderConfig):
    """x [R, T, D], w [heads * H, D] -> fp32 [R, heads, T, H]."""
    y = jnp.einsum("rtd,nhd->rnth", x, w.reshape(-1, config.head_dim, w.shape[1]), preferred_element_type=jnp.float32)
    return y if bias is None else y + bias.reshape(-1, 1, config.head_dim)


def _mlp(x, p, config: DecoderConfig, tuning: Tuning, split: Split):
    """fp32 [R, T, D], and functions that make the sites of a dense MLP."""
    activation = _ACTIVATIONS[config.activation]
    inner = _linear(x, p["up"], p.get("b_up"))
    inner = activation(_linear(x, p["gate"], p.get("b_gate"))) * inner if config.gated else activation(inner)
    inner = inner.astype(x.dtype)
    if tuning.mlp_barrier:
        inner = jax.lax.optimization_barrier(inner)
    out = split.total(_linear(inner, p["down"], None), p["down"].shape[1], config.d_ff, x.dtype)
    return _plus(out, p.get("b_down")), {"mlp_neurons": lambda: split.gather(inner, config.d_ff)}


def _mixture(x, p, config: DecoderConfig, split: Split):
    """fp32 [R, T, D]: every token's chosen experts, and functions that make the sites of a mixture.

    The tokens of an expert are rows of one ragged product, however many they are; the order of a token's experts is
    that of their weights, so its sum has the same bits in any row.
    """
    experts = cast(Experts, config.experts)
    tokens = x.reshape(-1, x.shape[-1])
    logits = _plus(jnp.einsum("md,ed->me", tokens, p["router"], preferred_element_type=jnp.float32), p.get("b_router"))
    weights, chosen = jax.lax.top_k(jax.nn.softmax(logits), experts.per_token)  # fp32, int32 [tokens, per token]
    if experts.weights_add_up:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    expert = chosen.reshape(-1)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=experts.count).astype(jnp.int32)

    def linear(rows, name):
        y = jax.lax.ragged_dot(rows, p[name], sizes, preferred_element_type=jnp.float32)
        bias = p.get(f"b_{name}")
        return y if bias is None or name == "experts_down" else y + bias[expert[order]]

    rows = tokens[order // experts.per_token]
    inner = _gated(linear(rows, "experts_gate"), linear(rows, "experts_up"), config, experts).astype(x.dtype)
    out = linear(inner, "experts_down")[jnp.argsort(order)].reshape(*chosen.shape, -1)
    out = split.total((out * weights[..., None]).sum(axis=1), inner.shape[-1], experts.d_ff, x.dtype)
    if experts.biases:
        out = out + (p["b_experts_down"][chosen] * weights[..., None]).sum(axis=1)
    found = {"router_logits": logits, "experts": chosen}
    return out.reshape(x.shape), {site: lambda y=y: y.reshape(*x.shape[:2], y.shape[-1]) for site, y in found.items()}


def _gated(gate, up, config: DecoderConfig, experts: Experts):
    if experts.clamp is None:
        return _ACTIVATIONS[config.activation](gate) * up
    alpha, limit = experts.clamp
    gate, up = jnp.minimum(gate, limit), jnp.clip(up, -limit, limit)
    return (up + 1) * gate * jax.nn.sigmoid(gate * alpha)


def _linear(x, w, bias):
    """x [R, T, in], w [out, in] as in the files -> fp32 [R, T, out]."""
    return _plus(jnp.einsum("rti,oi->rto", x, w, preferred_element_type=jnp.float32), bias)


def _plus(y, bias):
    return y if bias is None else y + bias


def _norm(x, name: str, p, config: DecoderConfig):
    """x [..., D] -> the same, in x's dtype."""
    if not config.layer_norm:
        return _rms_norm(x, p[name], config)
    x32 = x.astype(jnp.float32)
    x32 = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + config.norm_eps)
    return (x32 * p[name] + p[f"{name}_bias"]).astype(x.dtype)


def _rms_norm(x, weight, config: DecoderConfig, mean=None):
    """x [..., D] -> the same, in x's dtype. Some families round before they apply the weights; others round after.

    mean: of the squares; None for the mean over the last axis.
    """
    x32 = x.astype(jnp.float32)
    squares = x32 * x32
    squares = mean(squares) if mean else jnp.mean(squares, axis=-1, keepdims=True)
    x32 = x32 * jax.lax.rsqrt(squares + config.norm_eps)
    if config.norm_rounds_last:
        return (x32 * (weight.astype(jnp.float32) + config.norm_offset)).astype(x.dtype)
    return x32.astype(x.dtype) * (weight + jnp.asarray(config.norm_offset, weight.dtype)).astype(x.dtype)


def _norm_together(x, weight, config: DecoderConfig, split: Split):
    """The norm of x [R, N, T, H] over all heads of a token, on all devices; weight [N * H]."""

    def mean(squares):
        own = squares.mean(axis=(1, 3), keepdims=True)
        # Where devices share heads, every head counts equally often.
        return jax.lax.pmean(own, "model") if split.ways > 1 else own

    return _rms_norm(x, weight.reshape(-1, 1, config.head_dim), config, mean)
