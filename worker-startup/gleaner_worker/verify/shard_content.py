"""The content of a shard: its required properties, its real ones, and the checks that all formats share."""

from dataclasses import dataclass, field

import numpy as np

from ..spec import Spec
from .statistics import LayerStatistics

# Facts that only the inside of a shard states: of its values, and for a pkl.gz facts that other formats show as
# tensors.
_INSIDE = {"stats", "checksums", "site", "d_model", "dtype"}


@dataclass(frozen=True)
class Wanted:
    """The properties that every shard of the run has."""

    spec: Spec
    layers: tuple[int, ...]
    d_model: int
    selects: bool  # rows are of some of the tokens, and each has a position

    @property
    def pooled(self) -> bool:
        return self.spec.tokens == "mean"

    @property
    def has_positions(self) -> bool:
        return self.selects and not self.pooled

    @property
    def names(self) -> list[str]:
        return [f"{site}.{layer}" for site in self.spec.sites for layer in self.layers]


@dataclass
class ShardContent:
    """The samples of a shard by its content; `problems` are phrases that complete "<object> …"."""

    sample_idx: list[int] = field(default_factory=list)
    row_counts: list[int] = field(default_factory=list)
    token_ids: list[np.ndarray] | None = None  # per sample; a pkl.gz has none
    positions: list[np.ndarray] | None = None  # per sample; None where rows are means, or a pkl.gz has all tokens
    kept: list[dict] | None = None
    lines: list[tuple[int, int]] | None = None  # line and chunk per sample, of runs that cut documents
    token_lines: list[np.ndarray] | None = None  # per sample of a packed run
    previews: list[str] | None = None
    stats: dict = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def contradictions(inside: dict[str, str], outside: dict[str, str]) -> list[str]:
    return [
        f"says {key} {inside[key]} inside and {outside.get(key)} outside"
        for key in sorted(set(inside) - _INSIDE)
        if inside[key] != outside.get(key)
    ]


def wrong_values(name: str, found: LayerStatistics, stats: object, is_int8: bool) -> list[str]:
    if not found.is_finite:
        return [f"has values in {name} that are not finite"]
    said = found.contradicts(stats, is_int8)
    return [f"says of {name} {said}"] if said else []
