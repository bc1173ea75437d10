"""The two kinds of MLP: one that is dense, and a mixture of experts.

In shapes: R rows of T tokens are M = R * T tokens, D values wide; F neurons on this device; E experts, of which each
token takes C.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp

from ...architecture.config import DecoderConfig, Experts
from ..weights.cpu import from_bits
from .split import Split
from .tuning import Tuning

_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}
# Of a tile of the kernel for experts: its rows, and the most bytes of rows and of weights. VMEM holds two of each.
_TILE_ROWS, _ROWS_BYTES, _WEIGHTS_BYTES = 128, 2 << 20, 9 << 19
Sites = dict[str, Callable[[], jax.Array]]  # a site is computed only if it is stored


def dense(x, p: dict, config: DecoderConfig, tuning: Tuning, split: Split) -> tuple[jax.Array, Sites]:
    """fp32 [R, T, D], and the sites of a dense MLP; x [R, T, D]."""
    activation = _ACTIVATIONS[config.activation]
    x = jax.lax.optimization_barrier(x) if tuning.mlp_barrier else x
    inner = _linear(x, p["up"], p.get("b_up"))  # fp32 [R, T, F]
    inner = activation(_linear(x, p["gate"], p.get("b_gate"))) * inner if config.gated else activation(inner)
    inner = inner.astype(x.dtype)
    inner = jax.lax.optimization_barrier(inner) if tuning.neurons_barrier else inner
    out = split.total(_linear(inner, p["down"], None), p["down"].shape[1], config.d_ff, x.dtype)  # [R, T, D]
    return plus(out, p.get("b_down")), {"mlp_neurons": lambda: split.gather(inner, config.d_ff)}


def mixture(
    x, p: dict, stacks: dict, place, config: DecoderConfig, tuning: Tuning, split: Split
) -> tuple[jax.Array, Sites]:
    """fp32 [R, T, D]: the chosen experts of every token, and the sites of a mixture; x [R, T, D].

    The tokens of an expert are rows of one ragged product, however many they are; the order of a token's experts is
    that of their weights, so its sum has the same bits in any row.
    stacks: the experts of all layers, [layers, E, F, D]; place: that of this layer in them.
    """
    experts = cast(Experts, config.experts)
    tokens = x.reshape(-1, x.shape[-1])  # [M, D]
    logits = plus(jnp.einsum("md,ed->me", tokens, p["router"], preferred_element_type=jnp.float32), p.get("b_router"))
    weights, chosen = jax.lax.top_k(jax.nn.softmax(logits), experts.per_token)  # fp32, int32 [M, C]
    if experts.weights_add_up:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    expert = chosen.reshape(-1)  # [M * C]
    order = jnp.argsort(expert)  # [M * C]
    sizes = jnp.bincount(expert, length=experts.count).astype(jnp.int32)  # [E]

    def linear(rows, name):
        y = by_expert(rows, stacks[name], place, sizes, name == "experts_down", tuning)  # [M * C, out]
        bias = p.get(f"b_{name}")
        return y if bias is None or name == "experts_down" else y + bias[expert[order]]

    rows = tokens[order // experts.per_token]  # [M * C, D], those of one expert after another
    inner = _gated(linear(rows, "experts_gate"), linear(rows, "experts_up"), config, experts).astype(x.dtype)
    places = jnp.argsort(order).reshape(chosen.shape)  # [M, C]: of each choice of a token among the rows

    def weighted(of):
        """fp32 [M, D]: the sum of what the chosen experts of each token give, one after another."""
        first, *others = (of(choice) * weights[:, choice, None] for choice in range(experts.per_token))
        return sum(others, first)

    down = linear(inner, "experts_down")
    out = weighted(lambda choice: down[places[:, choice]])
    out = split.total(out, inner.shape[-1], experts.d_ff, x.dtype)
    if experts.biases:
        out = out + weighted(lambda choice: p["b_experts_down"][chosen[:, choice]])
    found = {"router_logits": logits, "experts": chosen}
    return out.reshape(x.shape), {site: lambda y=y: y.reshape(*x.shape[:2], y.shape[-1]) for site, y in found.items()}


def by_expert(rows, stack, place, sizes, is_down: bool, tuning: Tuning):
    """fp32 [N, out]: rows [N, in], those of one expert after another, times the weights of their expert.

    stack [layers, E, F, D]; sizes int32 [E]: the rows of each expert.
    """
    experts, wide, deep = stack.shape[1:]
    if not tuning.kernels:
        w = from_bits(jax.lax.dynamic_index_in_dim(stack, place, keepdims=False))
        w = w if is_down else jnp.swapaxes(w, 1, 2)
        return jax.lax.ragged_dot(rows, w, sizes, preferred_element_type=jnp.float32)
    from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

    # The kernel takes the stack of all layers, because a slice of it would be a copy. The offset makes it read expert e
    # at place * E + e. Its grid has the tiles of this layer's experts alone, and each tile the whole inner axis, so it
    # reads the weights of an expert once for each tile of columns.
    into, out = (wide, deep) if is_down else (deep, wide)
    size = into * rows.dtype.itemsize
    columns = min(out, _WEIGHTS_BYTES // size // 128 * 128)
    most = min(_TILE_ROWS, _ROWS_BYTES // size)
    tile = min(1 << most.bit_length() - 1, len(rows) & -len(rows)), into, columns
    groups, offset = stack.reshape(-1, wide, deep), -place * experts
    return gmm(rows, groups, sizes, jnp.float32, tile, offset, transpose_rhs=not is_down, interpret=tuning.interpret)


def _gated(gate, up, config: DecoderConfig, experts: Experts):
    """[M * C, F], as gate and up."""
    if experts.clamp is None:
        return _ACTIVATIONS[config.activation](gate) * up
    alpha, limit = experts.clamp
    gate, up = jnp.minimum(gate, limit), jnp.clip(up, -limit, limit)
    return (up + 1) * gate * jax.nn.sigmoid(gate * alpha)


def _linear(x, w, bias):
    """x [R, T, in], w [out, in] as in the files -> fp32 [R, T, out]."""
    return plus(jnp.einsum("rti,oi->rto", x, w, preferred_element_type=jnp.float32), bias)


def plus(y, bias):
    return y if bias is None else y + bias
