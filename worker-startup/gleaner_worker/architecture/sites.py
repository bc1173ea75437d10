"""The sites of a model as data: the width of a row, the blocks that have a site, and the type of its values."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np

from ..failures import Failure
from .config import DecoderConfig
from .reductions import Reduction

STORED = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "int8": np.dtype(np.int8),
    "int32": np.dtype(np.int32),
}
# Sums over stored vectors, per layer: of all values, of the L2 norms, the largest magnitude (a maximum), and the number
# of vectors with a value that is not finite. int8 adds the squares of the rounding errors and of the values.
STATS = ("sum", "norm_sum", "max_abs", "non_finite")
MOMENTS = ("sum", "squares")  # of the vectors of a sample, for each value
INT8_STATS = (*STATS, "squared_error", "squares")


@dataclass(frozen=True)
class Site:
    """width: of a row, a key of _WIDTHS. where: every "block", the blocks with a "dense" MLP or with a "mixture"
    of experts; or once, with the number of the "first" or the "last" block. dtype: of the stored values; None for that
    of the run. end: the weights after the last block that it needs, one of ENDS."""

    width: str
    where: str = "block"
    dtype: str | None = None
    end: str = ""


ENDS = ("", "norm", "head")  # each needs those before it


_WIDTHS: dict[str, Callable[[DecoderConfig, int], int]] = {
    "d_model": lambda config, top_k: config.d_model,
    "queries": lambda config, top_k: config.num_heads * config.head_dim,
    "keys": lambda config, top_k: config.num_kv_heads * config.head_dim,
    "neurons": lambda config, top_k: config.d_ff,
    "experts": lambda config, top_k: config.experts.count if config.experts else 0,
    "chosen experts": lambda config, top_k: config.experts.per_token if config.experts else 0,
    "top_k": lambda config, top_k: top_k,
    "one": lambda config, top_k: 1,
}


# The order of tensors in a shard. resid_pre: the residual stream that enters a block. attn_out and mlp_out: the sums
# that the block's two halves add, after their own norms in families with such norms. resid_mid and resid_post: the
# residual stream after each half. q, k and v: the projections with their biases, before any norm; rot_q and rot_k: as
# attention takes them. attn_z: the input of the output projection. mlp_in: the input of the MLP. mlp_neurons: the input
# of its last projection. experts: the numbers of the chosen experts, the largest weight first. top_tokens and
# top_logprobs: the likeliest next tokens and their log-probabilities. loss: of the next token, 0 for the last token.
TABLE = {
    "resid_pre": Site("d_model"),
    "resid_mid": Site("d_model"),
    "resid_post": Site("d_model"),
    "attn_out": Site("d_model"),
    "mlp_out": Site("d_model"),
    "embeddings": Site("d_model", "first"),
    "q": Site("queries"),
    "k": Site("keys"),
    "v": Site("keys"),
    "rot_q": Site("queries"),
    "rot_k": Site("keys"),
    "attn_z": Site("queries"),
    "mlp_in": Site("d_model"),
    "mlp_neurons": Site("neurons", "dense"),
    "router_logits": Site("experts", "mixture"),
    "experts": Site("chosen experts", "mixture", "int32"),
    "final_norm": Site("d_model", "last", end="norm"),
    "top_tokens": Site("top_k", "last", "int32", "head"),
    "top_logprobs": Site("top_k", "last", "fp32", "head"),
    "loss": Site("one", "last", "fp32", "head"),
}
SITES = tuple(TABLE)
# The order of computation in a block.
COMPUTED = (
    *("embeddings", "resid_pre", "q", "k", "v", "rot_q", "rot_k", "attn_z", "attn_out", "resid_mid", "mlp_in"),
    *("router_logits", "experts", "mlp_neurons", "mlp_out", "resid_post", "final_norm"),
    *("top_tokens", "top_logprobs", "loss"),
)


@dataclass(frozen=True)
class Capture:
    """The vectors that a run stores, and the computation of every step. Hashable: static under jit."""

    config: DecoderConfig
    layers: tuple[int, ...]  # that the spec asks for
    sites: tuple[str, ...]
    mode: str  # "all" tokens, picked "rows", or the "mean" or "max" of pools
    dtype: str  # a key of STORED
    top_k: int = 20  # next tokens of top_tokens and top_logprobs
    generates: bool = False  # tokens too, which need the whole model
    reductions: tuple[Reduction, ...] = ()
    moments: tuple[tuple[str, tuple[int, ...]], ...] = ()  # the sites and layers whose sums are stored for each sample

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the stored rows, in the order of a shard: sites, and what the reductions store."""
        return (*self.sites, *self._reduced)

    @cached_property
    def computed(self) -> frozenset[str]:
        """The sites that the decoder computes, to store or to reduce them."""
        reduced = [reduction.site for reduction in self.reductions]
        return frozenset((*self.sites, *reduced, *(site for site, _ in self.moments)))

    @cached_property
    def _reduced(self) -> dict[str, tuple[Reduction, int, str]]:
        """The reduction of each output that is no site, with its width and type."""
        return {name: (each, *form) for each in self.reductions for name, form in each.outputs.items()}

    def layers_of(self, name: str) -> tuple[int, ...]:
        """The blocks that store the output; one block for a site that is outside of the blocks."""
        if name in self._reduced:
            return self._reduced[name][0].layers
        return layers_with_site(self.config, name, self.layers)

    def width(self, name: str) -> int:
        return self._reduced[name][1] if name in self._reduced else site_width(self.config, name, self.top_k)

    def dtype_of(self, name: str) -> str:
        return self._reduced[name][2] if name in self._reduced else TABLE[name].dtype or self.dtype

    @property
    def names(self) -> tuple[tuple[str, int], ...]:
        """The output and the layer of each stored tensor, in the order of a shard."""
        return tuple((name, layer) for name in self.outputs for layer in self.layers_of(name))

    def at(self, layer: int) -> frozenset[str]:
        """What a block gives: "sites", if it stores one, and the names of reductions and moments."""
        forms = [("sites", site, self.layers_of(site)) for site in self.sites]
        forms += [(each.name, each.site, each.layers) for each in self.reductions]
        forms += [(f"{site} moments", site, layers) for site, layers in self.moments]
        return frozenset(name for name, site, layers in forms if is_inside(site) and layer in layers)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks in which something is stored, ascending."""
        return tuple(layer for layer in range(self.config.num_layers) if self.at(layer))

    @property
    def end(self) -> str:
        """The weights after the last block that the sites need, one of ENDS. Tied weights are those of embeddings."""
        return self._without_tied(self._end_of_sites)

    @property
    def _end_of_sites(self) -> str:
        return max((TABLE[site].end for site in self.computed), key=ENDS.index, default="")

    @property
    def has_logits(self) -> bool:
        """Whether a step needs the unembedding."""
        return self.generates or self._end_of_sites == "head"

    def _without_tied(self, end: str) -> str:
        return "norm" if end == "head" and self.config.is_tied else end

    @property
    def depth(self) -> int:
        """The number of blocks that a step computes."""
        return self.config.num_layers if self.end else max(self.blocks, default=0) + 1

    @property
    def loaded(self) -> tuple[int, str]:
        """The number of blocks whose weights are loaded, and the loaded weights after the last block, one of ENDS."""
        if self.generates:
            return self.config.num_layers, self._without_tied("head")
        return self.depth, self.end

    @property
    def facts(self) -> dict[str, dict]:
        """What the header of a shard says about reductions and moments, by name."""
        facts = {each.name: each.facts for each in self.reductions}
        if self.moments:
            layers = sorted({layer for _, layers in self.moments for layer in layers})
            facts["moments"] = {"kind": "moments", "sites": [site for site, _ in self.moments], "layers": layers}
        return facts

    def stats_columns(self, name: str) -> tuple[str, ...]:
        return INT8_STATS if self.dtype_of(name) == "int8" else STATS

    @cached_property
    def with_stats(self) -> tuple[str, ...]:
        """The outputs with statistics: all but the ids and numbers of features."""
        return tuple(name for name in self.outputs if name not in self._reduced or name == self._reduced[name][0].name)

    @cached_property
    def with_device_stats(self) -> tuple[str, ...]:
        """Those of which the device computes statistics. Those of few values that descend cost the host little."""
        encoded = {each.name for each in self.reductions if each.encoder}
        return tuple(name for name in self.with_stats if name not in encoded)

    @property
    def row_bytes(self) -> int:
        """The bytes of one stored vector over all outputs and layers, scales included."""
        return sum(len(self.layers_of(name)) * self._vector_bytes(name) for name in self.outputs)

    @property
    def sample_bytes(self) -> int:
        """The bytes of the sums of one sample over all sites and layers, in fp32."""
        return sum(4 * len(MOMENTS) * len(layers) * self.width(site) for site, layers in self.moments)

    def sizes_of_reductions(self, compute_dtype: str) -> list[dict]:
        """The bytes of each reduction, for a stored token or for a sample, and those of one copy of its weights."""
        itemsize = STORED[compute_dtype].itemsize
        sizes: list[dict] = []
        for each in self.reductions:
            row = len(each.layers) * sum(self._vector_bytes(name) for name in each.outputs)
            sizes.append({"name": each.name, "bytes_per_token": row, "weight_bytes": each.weight_bytes(itemsize)})
        if self.moments:
            sizes.append({"name": "moments", "bytes_per_sample": self.sample_bytes, "weight_bytes": 0})
        return sizes

    def _vector_bytes(self, name: str) -> int:
        dtype = self.dtype_of(name)
        return self.width(name) * STORED[dtype].itemsize + (4 if dtype == "int8" else 0)


def is_inside(site: str) -> bool:
    """Whether blocks have the site."""
    return TABLE[site].where not in ("first", "last")


def layers_with_site(config: DecoderConfig, site: str, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the blocks that have the site; one block for a site that is outside of the blocks."""
    where, experts = TABLE[site].where, config.experts
    if not is_inside(site):
        return (0 if where == "first" else config.num_layers - 1,)
    if where == "block":
        return layers
    return tuple(layer for layer in layers if bool(experts and experts.layers[layer]) == (where == "mixture"))


def site_width(config: DecoderConfig, site: str, top_k: int = 0) -> int:
    return _WIDTHS[TABLE[site].width](config, top_k)


def check_sites(config: DecoderConfig, layers: tuple[int, ...], sites: tuple[str, ...], top_k: int, where: str) -> None:
    """Raises Failure("model") for a site that no chosen block of the model has."""
    if {"top_tokens", "top_logprobs"} & {*sites} and top_k > config.vocab_size:
        raise Failure(
            "model",
            f"Failed to choose the {top_k} likeliest tokens of {where}: its vocabulary has {config.vocab_size}; lower "
            "`top_k`",
        )
    if absent := [site for site in sites if not layers_with_site(config, site, layers)]:
        kind = "dense MLP" if TABLE[absent[0]].where == "dense" else "mixture of experts"
        raise Failure(
            "model",
            f"Failed to choose {', '.join(absent)} of {where}: no chosen layer has a {kind}; leave the site out of "
            "`sites`, or change `layers`",
        )
