"""What a run answers about its rows: kept fields and texts."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..format.tokenizer import open_tokenizer
from ..query.rows import Row, row_numbers, row_of, typed
from .shard import Shard
from .shards import Shards

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Questions(Shards[Shard]):
    """The part of a Run that answers questions. Memory does not grow with the run."""

    stream_numbers: list[int]  # of each shard

    @property
    def outputs(self) -> dict[str, dict]:
        """What the run computed from activations: `{"scope": {"kind": "features", "site", "k", …}}`, or empty."""
        return self.first.outputs

    def rows(
        self, ids: Sequence[int] | np.ndarray, *, context: int = 16, tokenizer: "Tokenizer | str | None" = None
    ) -> list[Row]:
        """The origin of rows, and the text around each: `context` tokens before and after. ids: as in `layer(…)[ids]`.

        tokenizer: that of the run's model: `export.tokenizer_of(run)`, or the path of its tokenizer.json. None for rows
        without text. Raises IndexError for a row that the run lacks, and what `export.open_tokenizer` raises.

        >>> row = run.rows([5], context=2, tokenizer="my-model/tokenizer.json")[0]
        >>> row.stream, row.sample, row.position, row.before + "|" + row.token
        (0, 0, 5, 't3 t4|t5')
        """
        if context < 0:
            raise ValueError(f"context is {context}; set it to at least 0")
        if isinstance(tokenizer, str | os.PathLike):
            tokenizer = open_tokenizer(os.fspath(tokenizer))
        numbers, found = row_numbers(ids, self.num_rows), {}
        shards = np.searchsorted(self.row_offsets, numbers, "right") - 1
        for place in np.argsort(numbers, kind="stable").tolist():  # reads each index once
            shard = int(shards[place])
            row = int(numbers[place] - self.row_offsets[shard])
            found[place] = row_of(self.stream_numbers[shard], self.shard_index(shard), row, context, tokenizer)
        return [found[place] for place in range(len(numbers))]

    def table(self, *fields: str) -> dict[str, np.ndarray]:
        """Kept fields as an array [rows] each: all rows of a sample have its value.

        An array is int64, float64, bool, or of texts up to 64 characters. Other values are in an array of objects, with
        None where a record lacks the field. Raises ValueError for a field that no record has.

        >>> run.table("n")["n"].shape == (run.num_rows,)
        True
        """
        values, counts, known = {name: [] for name in fields}, [np.empty(0, np.int64)], {}
        for number in range(len(self.shards)):
            counts.append(np.diff(self.shard_index(number).row_offsets))
            for kept in self._kept_of(number, known):
                for name, column in values.items():
                    column.append(kept.get(name))
        self._check_fields(fields, known)
        return {name: np.repeat(typed(column), np.concatenate(counts)) for name, column in values.items()}

    def _kept_of(self, number: int, known: dict) -> list[dict]:
        """The kept fields of each sample of a shard; their names are added to `known`."""
        index = self.shard_index(number)
        kept = index.kept or [{}] * len(index.sample_idx)
        known |= dict.fromkeys(name for fields in kept for name in fields)
        return kept

    def _check_fields(self, names: Sequence[str], known: dict) -> None:
        if wrong := [name for name in names if name not in known]:
            kept = ", ".join(list(known)[:20]) or "none: `keep` of a spec names them"
            raise ValueError(f"there is no field {wrong[0]!r} in {self.url}; it keeps {kept}")
