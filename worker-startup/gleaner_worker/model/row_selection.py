"""The rows that come back from a batch: the shapes that follow from the spec's tokens, and the arrays that select."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from ..failures import Failure
from ..spec import Spec


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


def mode_of(spec: Spec) -> str:
    """The mode of capture.Capture."""
    if spec.tokens == "mean":
        return "mean"
    return "all" if spec.tokens == "all" and not spec.exclude_special else "rows"


def stored_width(spec: Spec, width: int) -> int:
    """The most rows of a sample that a batch of `width` tokens brings back.

    The number follows from the spec and the width alone, so one program serves each width.
    """
    if spec.tokens in ("last", "mean"):
        return 1
    if spec.tokens == "all":
        return width
    return most_rows(spec.tokens, width)


@lru_cache(maxsize=1024)
def most_rows(tokens: str | tuple[int, ...], length: int) -> int:
    """The most tokens that a slice or a list of positions takes from any sample of up to `length` tokens."""
    if not isinstance(tokens, str):
        return len(tokens)
    part = slice(*(int(number) if number else None for number in tokens.split(":")))
    return max(len(range(*part.indices(size))) for size in range(length + 1))


def check_tokens(spec: Spec, max_length: int) -> None:
    """Raises Failure("model") when no sample of up to `max_length` tokens has the tokens that `tokens` selects."""
    if spec.tokens in ("all", "last", "mean"):
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
        raise Failure("model", f"Failed to choose tokens: {problem}; correct `tokens` or `max_seq_length` in run.json")


def make_inputs(
    samples: Sequence[SelectedTokens], height: int, width: int, mode: str, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The token_ids, picks and counts that capture.capture takes; rows without a sample are zero."""
    token_ids = np.zeros((height, width), np.int32)
    counts = np.zeros(height, np.int32)
    picks = np.zeros({"all": (height, 0), "rows": (height, rows), "mean": (height, width)}[mode], np.int32)
    for b, sample in enumerate(samples):
        length = len(sample.token_ids)
        token_ids[b, :length] = sample.token_ids
        # Padding with the sample's own token: another token may not be finite, and 0 times infinity spoils the sample.
        token_ids[b, length:] = sample.token_ids[-1]
        positions = np.arange(length) if sample.positions is None else sample.positions
        counts[b] = len(positions)
        if mode == "rows":
            picks[b, : len(positions)] = positions
        elif mode == "mean":
            picks[b, positions] = 1
    return token_ids, picks.astype(bool) if mode == "mean" else picks, counts


def row_counts(counts: np.ndarray, samples: int, mode: str) -> np.ndarray:
    """int32 [samples]: the stored rows of each sample."""
    return np.ones(samples, np.int32) if mode == "mean" else counts[:samples]
