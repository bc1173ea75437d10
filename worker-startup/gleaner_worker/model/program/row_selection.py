"""The vectors that a row returns: the shapes that follow from the spec's tokens, and the arrays that select."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from ...failures import Failure
from ...spec.selections import POOLS, TokenSelection
from ...spec.spec import Spec, mode_of
from .rows import RowLimits, Rows, row_length

NO_TOKEN = -1  # a pick of padding


class SelectedTokens(Protocol):
    """A sample as the model takes it."""

    @property
    def token_ids(self) -> np.ndarray:
        """int32 [length]."""
        ...

    @property
    def positions(self) -> np.ndarray | None:
        """int32 [rows]: the positions of the stored or pooled tokens; None for all tokens."""
        ...

    @property
    def pools(self) -> np.ndarray | None:
        """int32 [rows, 2]: the first token of each pool and the token after its last one; None for one pool, of all."""
        ...


def stored_width(spec: Spec, row_tokens: int, max_length: int) -> int:
    """The most vectors that a row of `row_tokens` tokens returns: W of capture.compute_step.

    The number follows from the spec and the model's limits alone, so one program serves a run.
    """
    if mode_of(spec) == "all":
        return row_tokens
    return min(row_tokens, max_samples(row_tokens, bool(spec.moments)) * most_rows(spec.selection, max_length))


def row_limits(spec: Spec, max_length: int) -> RowLimits:
    """The limits of a row in a run whose samples have at most `max_length` tokens."""
    tokens = row_length(spec.row_tokens, max_length)
    return RowLimits(tokens, max_samples(tokens, bool(spec.moments)), stored_width(spec, tokens, max_length))


def max_samples(row_tokens: int, has_moments: bool) -> int:
    """The most samples of a row: fewer with moments, because a row returns two vectors for each."""
    return row_tokens // (32 if has_moments else 8)


@lru_cache(maxsize=1024)
def most_rows(selection: TokenSelection, length: int) -> int:
    """The most rows of any sample of up to `length` tokens."""
    if selection.spans is not None:
        return length
    if selection.reduction is not None:
        return 1
    if selection.positions is not None:
        return len(selection.positions)
    part = selection.part or slice(None)
    return selection.random or max(len(range(*part.indices(size))) for size in range(length + 1))


def check_token_selection(spec: Spec, max_length: int) -> None:
    """Raises Failure("model") when no sample of up to `max_length` tokens has the tokens that `tokens` selects."""
    problem, wanted = None, spec.selection.positions or ()
    if not most_rows(spec.selection, max_length):
        problem = f"the slice {spec.tokens} takes nothing from any sample of 1 to {max_length} tokens"
    elif absent := [position for position in wanted if not -max_length <= position < max_length]:
        problem = (
            f"position{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent[:20]))} cannot exist: a sample has "
            f"at most {max_length} tokens (0 to {max_length - 1}, or -{max_length} to -1)"
        )
    if problem:
        raise Failure(
            "model", f"Failed to choose tokens: {problem}; set `tokens` or `max_seq_length` to values that fit"
        )


def make_inputs(
    rows: Sequence[Sequence[SelectedTokens]], height: int, row_tokens: int, mode: str, width: int
) -> tuple[Rows, np.ndarray | tuple[np.ndarray, np.ndarray]]:
    """The rows and picks that capture.compute_step takes, for up to `height` rows; further rows are padding."""
    shape = (height, row_tokens)
    token_ids, segments, positions = (np.zeros(shape, np.int32) for _ in range(3))
    picks = np.full((height, width if mode == "rows" else 0), NO_TOKEN, np.int32)
    pooled, pools = np.zeros(shape, bool), np.zeros((height, width, 2), np.int32)
    for r, samples in enumerate(rows):
        lengths = [len(sample.token_ids) for sample in samples]
        begins, end = np.cumsum(lengths) - lengths, sum(lengths)
        token_ids[r, :end] = np.concatenate([sample.token_ids for sample in samples])
        # Padding repeats a token of the row: another token may be infinite, and 0 times infinity makes the row NaN.
        token_ids[r, end:] = token_ids[r, end - 1]
        segments[r, :end] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        positions[r, :end] = np.arange(end) - np.repeat(begins, lengths)
        if mode == "all":
            continue
        chosen = _in_row([_chosen(sample) for sample in samples], begins)
        if mode == "rows":
            picks[r, : len(chosen)] = chosen
        else:
            own = _in_row([_pools(sample).ravel() for sample in samples], begins).reshape(-1, 2)
            pooled[r, chosen], pools[r, : len(own)] = True, own
    return Rows(token_ids, segments, positions), (pooled, pools) if mode in POOLS else picks


def _in_row(of_samples: list[np.ndarray], begins: np.ndarray) -> np.ndarray:
    """Positions in samples as positions in their row."""
    return np.concatenate(of_samples) + np.repeat(begins, [len(positions) for positions in of_samples])


def _chosen(sample: SelectedTokens) -> np.ndarray:
    return np.arange(len(sample.token_ids)) if sample.positions is None else sample.positions


def _pools(sample: SelectedTokens) -> np.ndarray:
    return np.array([[0, len(sample.token_ids)]]) if sample.pools is None else sample.pools


def row_counts(samples: Sequence[SelectedTokens], mode: str) -> np.ndarray:
    """int32 [samples]: the stored vectors of each sample."""
    if mode in POOLS:
        return np.array([1 if s.pools is None else len(s.pools) for s in samples], np.int32)
    return np.array([len(s.token_ids if s.positions is None else s.positions) for s in samples], np.int32)
