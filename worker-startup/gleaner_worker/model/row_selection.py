"""The vectors that a row returns: the shapes that follow from the spec's tokens, and the arrays that select."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from ..failures import Failure
from ..spec import POOLS, Spec, mode_of, random_count
from .decoder import Rows
from .rows import RowLimits, row_length

_ANY_NUMBER = ("all", "assistant")  # selections that may take every token of a sample


class SelectedTokens(Protocol):
    """A sample as the model takes it."""

    @property
    def token_ids(self) -> np.ndarray:
        """int32 [length]."""
        ...

    @property
    def positions(self) -> np.ndarray | None:
        """int32 [rows]: the positions of the stored or averaged tokens; None for all tokens."""
        ...


def stored_width(spec: Spec, row_tokens: int, max_length: int) -> int:
    """The most vectors that a row of `row_tokens` tokens returns: W of capture.compute_step.

    The number follows from the spec and the model's limits alone, so one program serves a run.
    """
    mode = mode_of(spec)
    if mode in POOLS:
        return max_samples(row_tokens)
    if mode == "all" or spec.tokens in _ANY_NUMBER:
        return row_tokens
    most = 1 if spec.tokens == "last" else most_rows(spec.tokens, max_length)
    return min(row_tokens, max_samples(row_tokens) * most)


def row_limits(spec: Spec, max_length: int) -> RowLimits:
    """The limits of a row in a run whose samples have at most `max_length` tokens."""
    tokens = row_length(spec.row_tokens, max_length)
    return RowLimits(tokens, max_samples(tokens), stored_width(spec, tokens, max_length))


def max_samples(row_tokens: int) -> int:
    """The most samples of a row."""
    return row_tokens // 8


@lru_cache(maxsize=1024)
def most_rows(tokens: str | tuple[int, ...], length: int) -> int:
    """The most tokens that a slice or a list of positions takes from any sample of up to `length` tokens."""
    if not isinstance(tokens, str):
        return len(tokens)
    if count := random_count(tokens):
        return count
    part = slice(*(int(number) if number else None for number in tokens.split(":")))
    return max(len(range(*part.indices(size))) for size in range(length + 1))


def check_token_selection(spec: Spec, max_length: int) -> None:
    """Raises Failure("model") when no sample of up to `max_length` tokens has the tokens that `tokens` selects."""
    if spec.tokens in (*_ANY_NUMBER, "last", *POOLS):
        return
    problem = None
    if isinstance(spec.tokens, str):
        if not most_rows(spec.tokens, max_length):
            problem = f"the slice {spec.tokens} takes nothing from any sample of 1 to {max_length} tokens"
    elif absent := [position for position in spec.tokens if not -max_length <= position < max_length]:
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
) -> tuple[Rows, np.ndarray]:
    """The rows and picks that capture.compute_step takes, for up to `height` rows; further rows are padding."""
    shape = (height, row_tokens)
    token_ids, segments, positions = (np.zeros(shape, np.int32) for _ in range(3))
    picks = np.zeros({"all": (height, 0), "rows": (height, width)}.get(mode, shape), np.int32)
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
        chosen = np.concatenate([begin + _chosen(sample) for begin, sample in zip(begins, samples, strict=True)])
        if mode == "rows":
            picks[r, : len(chosen)] = chosen
        else:
            picks[r, chosen] = 1
    return Rows(token_ids, segments, positions), picks.astype(bool) if mode in POOLS else picks


def _chosen(sample: SelectedTokens) -> np.ndarray:
    return np.arange(len(sample.token_ids)) if sample.positions is None else sample.positions


def row_counts(samples: Sequence[SelectedTokens], mode: str) -> np.ndarray:
    """int32 [samples]: the stored vectors of each sample."""
    if mode in POOLS:
        return np.ones(len(samples), np.int32)
    return np.array([len(s.token_ids if s.positions is None else s.positions) for s in samples], np.int32)
