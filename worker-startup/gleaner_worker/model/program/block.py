"""A block of every family: attention and MLP, each added to the residual stream.

In shapes: R rows of T tokens, D values wide; L layers; N query heads and K key/value heads of this device, H wide.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from ...architecture.config import DecoderConfig
from ...architecture.sites import Capture
from ..weights.cpu import from_bits
from ..weights.tensors import EXPERTS, OF_DENSE, OF_MIXTURE, OF_MLP, layers_with
from .attention import Past, attend, attend_past
from .mlp import Sites, dense, mixture, plus
from .norms import norm, norm_over_heads
from .rotate import angles, rotate
from .rows import Rows
from .split import Split
from .tuning import Tuning

# Beside the sites of a block: the keys and values that attention reads, a pair of [R, K, T, H].
# Sites are what a user stores, and are taken before a clip, a norm or a rotation.
READ = "keys and values"
_BY_HEAD = ("wq", "wk", "wv")  # [L, heads * H, D]
_OF_MLPS = {"mlp_neurons", "router_logits", "experts"}  # the sites that one kind of MLP has


@dataclass(frozen=True)
class Weights:
    """The weights of all blocks, each parameter stacked over the layers that have it."""

    stacks: dict[str, jax.Array]  # [layers, ...]
    places: dict[str, jax.Array]  # int32 [L]: the place of a layer in the stack of a parameter that some layers lack

    def of(self, layer, is_used: Callable[[str], bool]) -> dict[str, jax.Array]:
        """The parameters of one layer, without the axis of the layers."""
        # Indexed here instead of sliced before the scan, because a slice copies the weights of a whole range of layers.
        return {
            name: from_bits(
                jax.lax.dynamic_index_in_dim(
                    stack, self.places[name][layer] if name in self.places else layer, keepdims=False
                )
            )
            for name, stack in self.stacks.items()
            if is_used(name)
        }


@dataclass(frozen=True)
class Blocks:
    """The blocks of one program. A layer's number is known only inside a scan, so everything that differs by layer is
    an array that the number indexes, or a branch of a switch."""

    config: DecoderConfig
    sites: set[str]  # that every block returns
    tuning: Tuning
    split: Split
    weights: Weights
    rope_of: jax.Array  # int32 [L]
    cos: jax.Array  # fp32 [ropes, R, 1, T, rotary_dim / 2]
    sin: jax.Array
    attention: Callable  # (layer) -> the function (q [R, N, T, H], k, v [R, K, T, H], sinks [N] | None) -> [R, N, T, H]
    mlp: Callable  # (layer) -> the function (h [R, T, D]) -> fp32 [R, T, D], {site: fp32 [R, T, width]}


def make_blocks(
    stacks: dict, rows: Rows, capture: Capture, tuning: Tuning, split: Split, past: Past | None, reads: bool
) -> Blocks:
    """The arguments are those of run_blocks; stacks: its params["blocks"]."""
    config, sites = capture.config, {*capture.computed, *([READ] if reads else [])}
    length = rows.token_ids.shape[1] if past is None else past.positions.shape[1]
    # Gathered once, for all layers and heads.
    cos, sin = angles(config.ropes, config.rotary_dim, rows.segments, rows.positions, length)
    rope_of = jnp.asarray(config.layer_ropes)
    attention = _attention(config, rows, tuning, length) if past is None else _attention_to(past, config, rows)
    if tuning.heads_apart:
        stacks = stacks | {
            name: stacks[name].reshape(len(stacks[name]), -1, config.head_dim, config.d_model) for name in _BY_HEAD
        }
    weights = _stacked(stacks, config)
    mlp = _mlp(weights, capture, sites, tuning, split)
    return Blocks(config, sites, tuning, split, weights, rope_of, cos, sin, attention, mlp)


def run_block(x, layer, blocks: Blocks) -> tuple[jax.Array, dict]:
    """The stream x [R, T, D] after the block, and the block's sites.

    Values stay in fp32 between two products, and are rounded to the weights' dtype once.
    """
    config, split = blocks.config, blocks.split
    p = blocks.weights.of(layer, lambda name: name not in OF_MLP)
    rope, attention, mlp = blocks.rope_of[layer], blocks.attention(layer), blocks.mlp(layer)
    cos, sin = blocks.cos[rope], blocks.sin[rope]  # [R, 1, T, rotary_dim / 2]
    h = norm(x, "norm1", p, config) if config.pre_norms else x  # [R, T, D]
    h = jax.lax.optimization_barrier(h) if blocks.tuning.attention_barrier else h
    projected = _projected(h, p, config, split)  # fp32 [R, N, T, H], twice [R, K, T, H]
    q, k, v = _normed(*projected, p, config, split)
    scale = config.attention_scale / (layer + 1) if config.scale_by_layer else config.attention_scale
    scaled_q, rot_k = rotate(q, cos, sin, x.dtype, scale), rotate(k, cos, sin, x.dtype)
    read = rot_k, v.astype(x.dtype)
    z = attention(scaled_q, *read, p.get("sinks"))  # [R, N, T, H]
    attn_out = _added(_output(z, p, config, split), "post1", p, config, x.dtype)  # [R, T, D]
    mid = x + attn_out
    into = x if config.is_parallel else mid
    mlp_in = norm(into, "norm2", p, config) if config.pre_norms else into  # [R, T, D]
    mlp_out, of_mlp = mlp(mlp_in)  # fp32 [R, T, D]
    mlp_out = _added(mlp_out, "post2", p, config, x.dtype)
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
        "attn_z": lambda: by_token(z, config.num_heads),
        "mlp_in": lambda: mlp_in,
        READ: lambda: read,
    }
    return after, {site: of() for site, of in found.items() if site in blocks.sites} | of_mlp


def _projected(h, p: dict, config: DecoderConfig, split: Split) -> tuple[jax.Array, jax.Array, jax.Array]:
    """h [R, T, D] -> queries fp32 [R, N, T, H], keys and values [R, K, T, H]."""
    own = max(1, config.num_kv_heads // split.ways)

    def heads(w, bias):  # w [heads * H, D], or [heads, H, D]
        w = w.reshape(-1, config.head_dim, w.shape[-1])
        y = jnp.einsum("rtd,nhd->rnth", h, w, preferred_element_type=jnp.float32)  # [R, heads, T, H]
        return y if bias is None else y + bias.reshape(-1, 1, config.head_dim)

    def shared(name: str):
        w, bias = p[f"w{name}"], p.get(f"b{name}")
        values = own * config.head_dim
        w = split.own(w, 0, own if w.ndim == 3 else values)
        return heads(w, None if bias is None else split.own(bias, 0, values))

    return heads(p["wq"], p.get("bq")), shared("k"), shared("v")


def _normed(q, k, v, p: dict, config: DecoderConfig, split: Split) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values as attention takes them, before the rotation."""
    if config.qk_norm == "head":
        q, k = norm(q, "q_norm", p, config), norm(k, "k_norm", p, config)
    elif config.qk_norm:
        own = split.own(p["k_norm"], 0, k.shape[1] * config.head_dim)
        q, k = (norm_over_heads(y, weight, config, split) for y, weight in ((q, p["q_norm"]), (k, own)))
    if config.clip_qkv is not None:
        q, k, v = (jnp.clip(y, -config.clip_qkv, config.clip_qkv) for y in (q, k, v))
    return q, k, v


def _output(z, p: dict, config: DecoderConfig, split: Split):
    """fp32 [R, T, D]: the output projection of z [R, N, T, H]."""
    wo = p["wo"].reshape(config.d_model, -1, config.head_dim)  # [D, N, H]
    out = jnp.einsum("rnth,dnh->rtd", z, wo, preferred_element_type=jnp.float32)
    return plus(split.total(out, wo.shape[1], config.num_heads, z.dtype), p.get("bo"))


def _added(y, post_norm: str, p: dict, config: DecoderConfig, dtype):
    """What attention or MLP adds to the stream, for its output y [R, T, D]."""
    y = norm(y, post_norm, p, config) if config.post_norms else y
    return (y if config.residual_scale == 1 else y * config.residual_scale).astype(dtype)


def _attention(config: DecoderConfig, rows: Rows, tuning: Tuning, length: int) -> Callable:
    """Attention among the tokens of a row."""
    windows = [min(window, length) for window in config.windows]  # longer windows are full attention
    different = sorted(set(windows))
    window_of = jnp.asarray([different.index(window) for window in windows])  # int32 [L]
    forms = [
        lambda q, k, v, sinks, window=window: attend(
            q, k, v, rows.segments, sinks, window=window, softcap=config.attention_softcap, tuning=tuning
        )
        for window in different
    ]
    return lambda layer: forms[0] if len(forms) == 1 else partial(jax.lax.switch, window_of[layer], forms)


def _attention_to(past: Past, config: DecoderConfig, rows: Rows) -> Callable:
    """Attention of the one token of a row to itself and the tokens before it."""

    def of(layer) -> Callable:
        distance = rows.positions - past.positions  # [R, S]
        seen = (past.positions >= 0) & (distance < jnp.asarray(config.windows)[layer])
        past_k, past_v = (jax.lax.dynamic_index_in_dim(each, layer, keepdims=False) for each in past[:2])
        return lambda q, k, v, sinks: attend_past(q, k, v, past_k, past_v, seen, sinks, config.attention_softcap)

    return of


def _mlp(weights: Weights, capture: Capture, sites: set[str], tuning: Tuning, split: Split) -> Callable:
    """The MLPs, dense or mixtures of experts."""
    config = capture.config
    is_mixture = jnp.asarray(config.experts.layers if config.experts else (), jnp.int32)  # [L]

    def of_dense(h, layer):
        p = weights.of(layer, lambda name: name in OF_DENSE)
        return stored(h, *dense(h, p, config, tuning, split))

    def of_mixture(h, layer):
        p = weights.of(layer, lambda name: name in OF_MIXTURE and name not in EXPERTS)
        place = weights.places[EXPERTS[0]][layer]
        return stored(h, *mixture(h, p, weights.stacks, place, config, tuning, split))

    forms = [form for form, name in ((of_dense, "down"), (of_mixture, "experts_down")) if name in weights.stacks]

    def stored(h, out, found: Sites):
        """With two kinds of MLP, zeros for the sites of the other kind."""
        wanted = sites & (_OF_MLPS if len(forms) > 1 else found.keys())
        return out, {
            site: found[site]().astype(jnp.float32)
            if site in found
            else jnp.zeros((*h.shape[:2], capture.width(site)), jnp.float32)
            for site in sorted(wanted)
        }

    def of(layer) -> Callable:
        form = forms[0] if len(forms) == 1 else partial(jax.lax.switch, is_mixture[layer], forms)
        return lambda h: form(h, layer)

    return of


def _stacked(stacks: dict, config: DecoderConfig) -> Weights:
    if not config.experts:
        return Weights(stacks, {})
    places = {
        name: jnp.asarray([len(layers_with(config, name, layer)) for layer in range(config.num_layers)])
        for name in stacks
        if name in OF_MLP
    }
    return Weights(stacks, places)
