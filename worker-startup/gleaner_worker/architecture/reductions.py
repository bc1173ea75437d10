"""The reductions of a run: small numbers that the device computes of a site's vectors, stored in their place or beside
them."""

from dataclasses import dataclass
from math import prod

import numpy as np

# Features are padded to a multiple of it, so that groups of TOP_GROUP divide each of up to eight parts.
_PADDING = 128
TOP_GROUP = 16  # features of a group in the search for the largest; see program/top.py
NORMS = ("none", "layer_norm", "constant_norm_rescale")  # of a vector before the product, as SAELens names them


@dataclass(frozen=True)
class Encoder:
    """The encoder of sparse autoencoders: values = relu(u * p + b) where p + g > theta, for p = n(x) W.

    Without them in `vectors`, u is 1, g is b and theta is 0.
    """

    d_sae: int
    architecture: str  # as SAELens names it
    norm: str = "none"  # one of NORMS
    vectors: tuple[str, ...] = ("b",)  # the parameters beside W: fp32 [d_sae] each
    most: int | None = None  # active features of a vector, by its own k

    @property
    def padded(self) -> int:
        """d_sae with the features that are never active."""
        return -(-self.d_sae // _PADDING) * _PADDING


@dataclass(frozen=True)
class Reduction:
    """An entry of `features` or `project`. Hashable: static under jit."""

    name: str
    site: str  # whose vectors it reduces
    layers: tuple[int, ...]
    width: int  # of the site
    k: int  # numbers of a row
    dtype: str  # of its values, a key of sites.STORED
    encoder: Encoder | None = None  # of features

    @property
    def outputs(self) -> dict[str, tuple[int, str]]:
        """The stored tensors: width and type by name, in the order of a shard. Ids are -1 where a row has fewer
        features."""
        if self.encoder is None:
            return {self.name: (self.k, self.dtype)}
        more = {f"{self.name}_ids": (self.k, "int32"), f"{self.name}_active": (1, "int32")}
        return {self.name: (self.k, self.dtype)} | more

    @property
    def facts(self) -> dict:
        """What the header of a shard says about it."""
        facts = {"site": self.site, "layers": list(self.layers), "k": self.k}
        if self.encoder is None:
            return {"kind": "project"} | facts
        own = {name: getattr(self.encoder, name) for name in ("d_sae", "architecture", "norm")}
        return {"kind": "features"} | facts | own

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its parameters, each stacked over its layers."""
        n = len(self.layers)
        if self.encoder is None:
            return {"directions": (n, self.k, self.width)}
        vector: tuple[int, ...] = n, self.encoder.padded
        return {"encode": (*vector, self.width)} | dict.fromkeys(self.encoder.vectors, vector)

    def weight_bytes(self, itemsize: int) -> int:
        """The bytes of its parameters. itemsize: of a value of the computation; others than `encode` are fp32."""
        return sum(prod(shape) * (itemsize if name == "encode" else 4) for name, shape in self.parameters.items())


def places_of_ids(features: int, ways: int) -> np.ndarray:
    """int64 [features]: the feature at each place of the parameters, for weights split `ways` ways."""
    part = np.arange(features // ways).reshape(-1, TOP_GROUP).T.ravel()
    return np.concatenate([part + way * (features // ways) for way in range(ways)])
