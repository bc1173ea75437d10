"""The content of a shard: the required content, the real content, and the checks that all formats share."""

from dataclasses import dataclass, field

import numpy as np

from ..architecture.sites import Capture
from ..records.samples.sample_settings import SampleSettings
from ..spec.spec import Spec
from .statistics import LayerStatistics

# Metadata keys that a file has and its object lacks. The last three are in a pkl.gz alone; other formats have tensors
# that show them.
_INSIDE = {"stats", "checksums", "outputs", "site", "d_model", "dtype"}


@dataclass(frozen=True)
class Expectation:
    """The metadata and content that every shard of the run must have; `settings` make the expected samples."""

    run: str
    spec: Spec
    spec_hash: str
    fingerprint: str | None  # of the run's model, where model.json states it
    capture: Capture
    settings: SampleSettings

    @property
    def selects(self) -> bool:
        """Whether the run stores rows of selected tokens, and the position of each row."""
        return not self.settings.selection.is_everything

    @property
    def pooled(self) -> bool:
        return self.spec.selection.is_pool

    @property
    def has_positions(self) -> bool:
        return self.selects and not self.pooled

    @property
    def names(self) -> list[str]:
        """Of the tensors with statistics."""
        return [f"{name}.{layer}" for name, layer in self.capture.names if name in self.capture.with_stats]


@dataclass
class ShardContent:
    """The samples that a shard holds; `problems` are phrases that complete "<object> …".

    sha256: of its bytes. is_read: the samples are known, also those of a shard with problems. has_wrong_values: some
    values are damaged or not finite.
    """

    sha256: str
    is_read: bool = False
    has_wrong_values: bool = False
    sample_idx: list[int] = field(default_factory=list)
    row_counts: list[int] = field(default_factory=list)
    # Of each sample, what the shard has of: token_ids, positions, span_idx, mask, token_lines, kept, preview, and line,
    # which is a pair with the chunk.
    parts: dict[str, list] = field(default_factory=dict)
    facts: dict = field(default_factory=dict)  # what metadata.json repeats of the header
    problems: list[str] = field(default_factory=list)


def contradictions(inside: dict[str, str], outside: dict[str, str]) -> list[str]:
    """A phrase for each difference between a file's metadata and the custom metadata of its object."""
    return [
        f"says {key} {inside[key]} inside and {outside.get(key)} in its object's metadata"
        for key in sorted(set(inside) - _INSIDE)
        if inside[key] != outside.get(key)
    ]


def wrong_values(
    name: str, actual: LayerStatistics, stats: object, is_int8: bool, positions: np.ndarray | None
) -> list[str]:
    """Describes values that are not finite, or `stats` (of the shard's header) that contradict the values.

    positions: of the token of each row; None for pools.
    """
    if not actual.is_finite:
        return [f"has values in {name} that are not finite"]
    if not isinstance(stats, dict):
        return [f"has no statistics of {name}"]
    problem = actual.contradiction(stats, is_int8, positions)
    return [f"has wrong statistics of {name}: {problem}"] if problem else []
