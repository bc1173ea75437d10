"""Rows of a run as places in texts, numbers that choose rows, and columns of kept fields."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..format.index import Index

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_DTYPES = {(bool,): np.bool_, (int,): np.int64, (float,): np.float64, (float, int): np.float64, (str,): np.str_}
# numpy gives each text the size of the longest one, and drops zeros at the end of a text.
_MAX_CHARS = 64


@dataclass(frozen=True)
class Row:
    """Where a row of a run comes from; `Run.rows` reads it.

    position, token_id: None for pools of tokens; a pkl.gz has no token_id. token, text, before, after: decoded, or None
    without a tokenizer. text has before, token and after; of a pool it is the whole sample.

    >>> run.rows([0])[0].position
    0
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


def row_of(stream: int, index: Index, row: int, context: int, tokenizer: "Tokenizer | None") -> Row:
    """row: its number in the shard of the index."""
    sample = int(np.searchsorted(index.row_offsets, row, "right")) - 1
    position = None if index.positions is None else int(index.positions[row])
    token = token_id = text = before = after = None
    if index.token_ids is not None:
        tokens = index.token_ids[slice(*index.sample_offsets[sample : sample + 2])].tolist()

        def decode(begin: int, end: int | None) -> str | None:
            return tokenizer.decode(tokens[max(begin, 0) : end], skip_special_tokens=False) if tokenizer else None

        if position is None:
            text = decode(0, None)
        else:
            token_id, begin, end = tokens[position], position - context, position + 1 + context
            text, token = decode(begin, end), decode(position, position + 1)
            before, after = decode(begin, position), decode(position + 1, end)
    kept = index.kept[sample] if index.kept else {}
    return Row(stream, int(index.sample_idx[sample]), position, token_id, token, text, before, after, kept)


def typed(values: list) -> np.ndarray:
    """The values as an array of their type, or of objects."""
    kinds = tuple(sorted(set(map(type, values)), key=lambda kind: kind.__name__))
    is_long = kinds == (str,) and any(len(value) > _MAX_CHARS or value.endswith("\0") for value in values)
    if kinds in _DTYPES and not is_long:
        try:
            return np.array(values, _DTYPES[kinds])
        except OverflowError:  # a number beyond 64 bits
            pass
    array = np.empty(len(values), object)
    for place, value in enumerate(values):  # numpy would look into lists
        array[place] = value
    return array


def row_numbers(key: Any, count: int) -> np.ndarray:
    """int64 [n]: the rows that a number, a slice or numbers choose of `count`, negative ones from the end.

    Raises IndexError for a row that there is not, and TypeError for another key.
    """
    if isinstance(key, slice):
        numbers = np.arange(*key.indices(count))
    else:
        numbers = np.atleast_1d(np.asarray(key))
    if numbers.ndim != 1 or (len(numbers) and not np.issubdtype(numbers.dtype, np.integer)):
        raise TypeError(f"rows are chosen by a number, a slice or numbers, not by {type(key).__name__}")
    numbers = numbers.astype(np.int64)
    wrong = (numbers < -count) | (numbers >= count)
    if wrong.any():
        raise IndexError(f"there is no row {numbers[wrong][0]}; there are {count}")
    return np.where(numbers < 0, numbers + count, numbers)
