"""Samples and rejects of a stream, numbered together from 0.

Nothing changes a sample. Its class is not frozen, nor are others with an object for each line, because a frozen
dataclass takes five times as long to make.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class Sample:
    """A sample whose activations are stored.

    chunk, token_lines: only in runs that cut documents (over_long chunk and pack). Line and chunk identify a sample
    there. The chunk is the number of earlier samples with tokens of that line.
    """

    index: int  # from 0, without a gap over samples and rejects
    token_ids: np.ndarray  # int32 [length]
    positions: np.ndarray | None  # int32 [rows], of the stored or pooled tokens; None for all
    preview: str
    truncated: bool
    kept: str = ""  # a JSON object of the record's fields that spec.keep names; "" without names
    line: int = 0  # zero-based, of its first token
    chunk: int | None = None
    token_lines: np.ndarray | None = None  # int64 [length]: the line of each token, in a packed window alone
    pools: np.ndarray | None = None  # int32 [rows, 2]: the first token of each pooled span and the token after its last
    span_idx: np.ndarray | None = None  # int32 [rows]: the number of the span of each row, where spans have rows
    mask: np.ndarray | None = None  # uint8 [length]: 1 for the tokens that spec.mask marks

    @property
    def last(self) -> int:
        return self.index

    @property
    def index_bytes(self) -> int:
        """The size of the sample's part of a shard's index."""
        ids = 4 * len(self.token_ids) + 16 + len(self.kept)
        lines = 0 if self.token_lines is None else 8 * len(self.token_lines)
        spans = 0 if self.span_idx is None else 4 * len(self.span_idx)
        mask = 0 if self.mask is None else len(self.mask)
        return ids + lines + spans + mask + (0 if self.chunk is None else 12)


@dataclass(frozen=True)
class Reject:
    """A sample that is not stored, or all samples of a line that cannot be used."""

    index: int  # of the first sample
    reason: str
    line: int  # zero-based
    samples: int = 1
    chunk: int | None = None

    @property
    def last(self) -> int:
        return self.index + self.samples - 1

    def record(self) -> dict:
        """The line of rejects.jsonl."""
        record = {"line": self.line + 1, "sample_idx": self.index, "reason": self.reason}
        if self.samples > 1:
            record["samples"] = self.samples
        if self.chunk is not None:
            record["chunk"] = self.chunk
        return record
