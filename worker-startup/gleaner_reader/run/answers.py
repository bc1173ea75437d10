"""What a run answers about its rows, and how the answers add up over the pieces of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .pieces import Piece

HISTOGRAM_EDGES = np.array([-np.inf, *2.0 ** np.linspace(-15.5, 15.5, 63), np.inf])  # half octaves
# A row with a score. group: the place of the feature that it is of.
FOUND = np.dtype([("group", "i8"), ("stream", "i8"), ("sample", "i8"), ("row", "i8"), ("score", "f4")])


@dataclass(frozen=True)
class Row:
    """Where a row of a run comes from; `Run.rows` reads it.

    position, token_id: None for pools of tokens; a pkl.gz has no token_id. text has before, token and after, each with
    the space that joins it to the tokens before; of a pool it is the whole sample. All are None without a tokenizer.
    """

    stream: int
    sample: int
    position: int | None
    token_id: int | None
    token: str | None
    text: str | None
    before: str | None
    after: str | None
    kept: dict


@dataclass(frozen=True)
class Top:
    """Rows of a run (int64), scores (fp32) and origins: the highest score first, of equal scores the lower row."""

    rows: np.ndarray
    scores: np.ndarray
    origins: list[Row]


@dataclass(frozen=True)
class Feature:
    """What a run has of one feature; `Run.features` reads it.

    active: the rows in which it is active; density: their share; both also by stream. at_least: the run cut features
    off some rows, so all of these may be too small. histogram: int64 [64], of values by half octaves from 2^-16 to
    2^16; the first and the last have all beyond.
    """

    name: str
    layer: int
    id: int
    active: int
    density: float
    at_least: bool
    max: float
    by_stream: dict[int, int]
    density_by_stream: dict[int, float]
    histogram: np.ndarray
    top: Top


@dataclass(frozen=True)
class Moments:
    """Of `count` vectors: mean and var (by count), fp64 [width]. var loses digits where mean² is larger."""

    count: int
    mean: np.ndarray
    var: np.ndarray


def added(head: str, text: str, alone: str) -> str:
    """What tokens add to the text `head` of those before, because some decoders join tokens by spaces; `alone`, their
    own text, where a character of several tokens is cut."""
    return text[len(head) :] if text.startswith(head) and not head.endswith("\ufffd") else alone


def texts_of(tokens: list[int], position: int | None, context: int, decode: Callable[[list[int]], str]) -> list:
    """token, text, before and after of a Row."""
    if position is None:
        return [None, decode(tokens), None, None]

    def part(first: int, last: int) -> str:
        near = max(first - 4, 0)  # a character has four bytes at most
        wanted = (near, first), (near, last), (first, last)
        return "" if first == last else added(*(decode(tokens[slice(*each)]) for each in wanted))

    begin, after, end = max(position - context, 0), position + 1, position + 1 + context
    token = part(position, after)
    return [token, part(begin, end) if context else token, part(begin, position), part(after, end)]


def best(found: np.ndarray, n: int, per_sample: int, more: tuple[Piece, np.ndarray, np.ndarray, Any] | None = None):
    """FOUND [rows]: the n highest finite scores of each group, at most `per_sample` of a sample, best first.

    found: the result for the pieces before. more: a piece, rows in it, their scores and their groups.
    """
    if n < 1 or per_sample < 1:
        raise ValueError(f"n is {n} and per_sample {per_sample}; set both to at least 1")
    if more:
        piece, rows, scores, groups = more
        new = np.empty(len(rows), FOUND)
        new["group"], new["row"], new["score"] = groups, piece.begin + rows, scores
        new["stream"], new["sample"] = piece.columns["stream"][rows], piece.columns["sample_idx"][rows]
        found = np.concatenate([found, new])
    found = found[np.isfinite(found["score"])]
    found = found[np.lexsort((found["row"], -found["score"], found["group"]))]
    for most, keys in (per_sample, ("group", "stream", "sample")), (n, ("group",)):
        order = np.lexsort([found[key] for key in keys])
        same = np.all([found[key][order][1:] == found[key][order][:-1] for key in keys], axis=0)
        places = np.arange(len(order))
        firsts = np.maximum.accumulate(np.where(np.append(False, same), 0, places))
        found = found[np.sort(order[places - firsts < most])]
    return found
