"""The tokens of a sample whose vectors are stored (spec: tokens, exclude_special)."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...spec.selections import Spans, TokenSelection, parse_tokens
from ...spec.spec import Spec
from .rejected import Rejected


@dataclass(frozen=True)
class Selection:
    """The spec's selection of tokens."""

    tokens: str | tuple[int, ...]
    special_ids: np.ndarray | None  # int32, ascending: ids that are excluded first; None without exclude_special
    seed: int = 0  # of random positions

    @cached_property
    def parsed(self) -> TokenSelection:
        return _parsed(self.tokens)

    @cached_property
    def is_everything(self) -> bool:
        return self.parsed.is_of_all and self.special_ids is None

    @cached_property
    def is_of_length(self) -> bool:
        """Whether samples of one length have the same positions."""
        return self.parsed.spans is None and not self.parsed.random and self.special_ids is None


@dataclass(frozen=True)
class Marks:
    """The spans of a sample, as its tokens.

    marked: uint8 [length]. Bit n is set for the tokens of the spans of source n (selections.span_sources).
    ranges: int32 [spans, 2], the first token of each span of source 0 and the token after its last one. None where a
    run needs no ranges. A span without a whole range in the sample has an empty one.
    """

    marked: np.ndarray
    ranges: np.ndarray | None = None

    def shifted(self, by: int) -> "Marks":
        """The marks after a token is put before the first one (by 1), or the first one is removed (by -1)."""
        marked = np.append(np.zeros(max(0, by), np.uint8), self.marked[max(0, -by) :])
        return Marks(marked, None if self.ranges is None else np.maximum(self.ranges + by, 0).astype(np.int32))

    def first(self, length: int | None) -> "Marks":
        """The marks of the first tokens; None for all of them. A span that is cut has no row."""
        if length is None or self.ranges is None:
            return Marks(self.marked[:length], self.ranges)
        return Marks(self.marked[:length], np.where(self.ranges[:, 1:] > length, 0, self.ranges).astype(np.int32))


@dataclass(frozen=True)
class ChosenRows:
    """The rows of a sample.

    positions: int32 [rows] in the order of storage, for a pool the pooled tokens; None for all tokens.
    pools: int32 [rows, 2], the first token of each pool and the token after its last one; None for one pool of the
    whole sample, or none. span_idx: int32 [rows], the number of the span of each row; None without spans.
    """

    positions: np.ndarray | None = None
    pools: np.ndarray | None = None
    span_idx: np.ndarray | None = None


_EVERYTHING = ChosenRows()


def make_selection(spec: Spec, special_ids: Sequence[int]) -> Selection:
    """special_ids: of the added tokens that tokenizer.json calls special, which may be anywhere in a sample."""
    special = np.array(sorted(special_ids), np.int32) if spec.exclude_special else None
    return Selection(spec.tokens, special, spec.seed)


def select(selection: Selection, token_ids: np.ndarray, marks: Marks | None = None, index: int = 0) -> ChosenRows:
    """Chooses the rows of a sample. index: of the sample in its stream.

    Positions are None for every sample of a run or for none. Positions and slices count the tokens that are left
    without excluded tokens. Raises Rejected for a sample without the selected tokens.
    """
    if selection.is_everything:
        return _EVERYTHING
    if selection.is_of_length:
        return _of_length(selection.tokens, len(token_ids))
    positions = np.arange(len(token_ids), dtype=np.int32)
    words = f"{len(token_ids)} tokens"
    if selection.special_ids is not None:
        positions = positions[~np.isin(token_ids, selection.special_ids)]
        words = f"{len(positions)} tokens that are not special"
        if not len(positions):
            raise Rejected(f"has only special tokens ({len(token_ids)}), which exclude_special leaves out")
    wanted = selection.parsed
    if wanted.spans is not None:
        assert marks is not None
        if wanted.reduction is None:
            return ChosenRows(_of_spans(positions, marks, wanted.spans, words))
        return _by_span(positions, marks, wanted, words, selection.special_ids is None)
    if wanted.random:
        seed = (selection.seed, index, zlib.crc32(token_ids.tobytes()))
        return ChosenRows(positions[_random(len(positions), wanted.random, *seed)])
    return ChosenRows(_numbered(positions, selection.tokens, words))


def _parsed(tokens: str | tuple[int, ...]) -> TokenSelection:
    parsed = parse_tokens(tokens)
    assert parsed is not None
    return parsed


@lru_cache(maxsize=256)
def _of_length(tokens: str | tuple[int, ...], length: int) -> ChosenRows:
    """The rows of each sample of `length` tokens."""
    return ChosenRows(_numbered(np.arange(length, dtype=np.int32), tokens, f"{length} tokens"))


def _numbered(positions: np.ndarray, tokens: str | tuple[int, ...], words: str) -> np.ndarray:
    """Those of the positions that a slice, a list or `last` takes; all of them for a pool."""
    wanted = _parsed(tokens)
    if wanted.part is not None and not len(positions[wanted.part]):
        raise Rejected(f"has {words}: the slice {tokens} selects none of them")
    if wanted.positions is not None:
        return _at(positions, wanted.positions, words)
    return positions[-1:] if wanted.reduction == "last" else positions[wanted.part or slice(None)]


def _of_spans(positions: np.ndarray, marks: Marks, spans: Spans, words: str) -> np.ndarray:
    """The positions of all spans."""
    chosen = positions[(marks.marked[positions] & 1).astype(bool)]
    if not len(chosen):
        raise Rejected(f"has {words}, {spans.nothing}")
    return chosen


def _by_span(positions: np.ndarray, marks: Marks, wanted: TokenSelection, words: str, takes_all: bool) -> ChosenRows:
    """One row for each span that has one of the positions."""
    assert marks.ranges is not None and wanted.spans is not None
    begins, ends = (np.searchsorted(positions, edge) for edge in marks.ranges.T)
    span_idx = np.flatnonzero(ends > begins).astype(np.int32)
    if not len(span_idx):
        raise Rejected(f"has {words}, {wanted.spans.nothing}")
    if len(span_idx) > len(marks.marked):
        raise Rejected(f"has {len(span_idx)} spans in {len(marks.marked)} tokens, and a token can have one row")
    if wanted.reduction == "last":
        return ChosenRows(positions[ends[span_idx] - 1], span_idx=span_idx)
    return ChosenRows(None if takes_all else positions, marks.ranges[span_idx], span_idx)


def _at(positions: np.ndarray, wanted: tuple[int, ...], words: str) -> np.ndarray:
    """The positions with these numbers."""
    count = len(positions)
    absent = [position for position in wanted if not -count <= position < count]
    if absent:
        raise Rejected(f"has {words}: position {absent[0]} does not exist (0 to {count - 1}, or -{count} to -1)")
    places = [position % count for position in wanted]
    if len(set(places)) < len(places):
        first, second = _same(wanted, places)
        raise Rejected(f"has {words}: positions {first} and {second} are the same token")
    return positions[places]


def _random(size: int, count: int, *seed: int) -> np.ndarray:
    """`count` of the numbers below `size`, or all of them, ascending: the same with every version of numpy."""
    raw = np.random.Philox(np.random.SeedSequence(seed)).random_raw(size)
    return np.sort(np.argsort(raw, kind="stable")[:count])


def _same(wanted: tuple[int, ...], places: list[int]) -> tuple[int, int]:
    seen: dict[int, int] = {}
    for position, place in zip(wanted, places, strict=True):
        if place in seen:
            return seen[place], position
        seen[place] = position
    raise AssertionError("no two positions are the same")
