"""A shard's index: its samples, and the rows and token ids of each."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .errors import ShardError
from .forks import cached_property
from .safetensors_header import TensorInfo


@dataclass(frozen=True)
class Index:
    """S samples, T tokens, R rows. Sample s owns tokens sample_offsets[s]..[s + 1] and rows row_offsets[s]..[s + 1].
    lines, chunks: only of a run with over_long chunk or pack; in other runs each record is one sample.

    >>> run.index(run.shards[0]).sample_idx[:5].tolist()  # sample 3 was rejected
    [0, 1, 2, 4, 5]
    """

    sample_idx: np.ndarray  # int64 [S], ascending
    sample_offsets: np.ndarray  # int64 [S + 1]
    row_offsets: np.ndarray  # int64 [S + 1]
    token_ids: np.ndarray | None  # int32 [T]; a pkl.gz has none
    positions: np.ndarray | None  # int32 [R]: the position in its sample of each row's token; None for pools of tokens
    kept: list[dict] | None  # per sample
    previews: list[str] | None = None  # per sample, in a pkl.gz alone
    lines: np.ndarray | None = None  # int64 [S], zero-based: the line of the stream that each sample begins in
    chunks: np.ndarray | None = None  # int32 [S]: how many samples before it hold tokens of that line
    token_lines: np.ndarray | None = None  # int64 [T]: the line of each token, in a run with over_long pack alone
    span_idx: np.ndarray | None = None  # int32 [R]: the span of its sample that each row is of, where spans have rows
    token_mask: np.ndarray | None = None  # uint8 [T]: 1 for each token that `mask` of the run marks, in such a run

    def __repr__(self) -> str:
        tokens = 0 if self.token_ids is None else len(self.token_ids)
        return f"<Index of {len(self.sample_idx):,} samples, {tokens:,} tokens, {int(self.row_offsets[-1]):,} rows>"

    @cached_property
    def row_tokens(self) -> np.ndarray | None:
        """int32 [R]: the token id of each row; None where rows are pools, or token ids are not stored."""
        return self._of_rows(self.token_ids)

    @cached_property
    def row_mask(self) -> np.ndarray | None:
        """uint8 [R]: 1 for each row whose token the run marks; None where rows are pools, or no mask is stored."""
        return self._of_rows(self.token_mask)

    def _of_rows(self, tokens: np.ndarray | None) -> np.ndarray | None:
        if tokens is None or self.positions is None:
            return None
        return tokens[np.repeat(self.sample_offsets[:-1], np.diff(self.row_offsets)) + self.positions]

    def find(self, sample_idx: int) -> int | None:
        """The place in this index of the sample with that number; None if the shard lacks it."""
        place = int(np.searchsorted(self.sample_idx, sample_idx))
        return place if place < len(self.sample_idx) and self.sample_idx[place] == sample_idx else None


_TYPES = {
    "sample_idx": "I64",
    "sample_offsets": "I64",
    "token_ids": "I32",
    "row_offsets": "I64",
    "positions": "I32",
    "line_idx": "I64",
    "chunk_idx": "I32",
    "token_line_idx": "I64",
    "span_idx": "I32",
    "token_mask": "U8",
    "kept": "U8",
}
INDEX = _TYPES.keys()  # the tensors of an index


def read_index(tensors: dict[str, TensorInfo], read: Callable[[str], np.ndarray], rows: int, url: str) -> Index:
    """read(name): returns a tensor. Raises ShardError unless the parts fit each other and the shard's rows.

    Accepts samples in any order; check_order refuses a wrong order.
    """
    for name, dtype in _TYPES.items():
        if name in tensors and (tensors[name].dtype, len(tensors[name].shape)) != (dtype, 1):
            raise ShardError(f"{url} cannot be read: its {name} are {tensors[name].dtype} {list(tensors[name].shape)}")
    arrays = {name: read(name) for name in _TYPES if name in tensors}
    if absent := [name for name in ("sample_idx", "sample_offsets", "token_ids") if name not in arrays]:
        raise ShardError(f"{url} cannot be read: it has no {' and no '.join(absent)}")
    token_ids, offsets, numbers = arrays["token_ids"], arrays["sample_offsets"], arrays["sample_idx"]
    row_offsets = arrays.get("row_offsets", offsets)
    check_offsets("sample_offsets", offsets, len(numbers), len(token_ids), "tokens", url)
    check_offsets("row_offsets", row_offsets, len(numbers), rows, "rows", url)
    positions = arrays.get("positions")
    lengths = np.diff(offsets)
    if "row_offsets" not in arrays:
        positions = (np.arange(len(token_ids)) - np.repeat(offsets[:-1], lengths)).astype(np.int32)
    elif positions is not None:
        if positions.shape != (rows,) or (positions < 0).any():
            raise ShardError(f"{url} cannot be read: its positions are not {rows} numbers from 0")
        if (positions >= np.repeat(lengths, np.diff(row_offsets))).any():
            raise ShardError(f"{url} cannot be read: it has positions that its samples lack")
    kept = _parse_kept(arrays["kept"], len(numbers), url) if "kept" in arrays else None
    counts = {"line_idx": len(numbers), "chunk_idx": len(numbers), "token_line_idx": len(token_ids)}
    counts |= {"span_idx": rows, "token_mask": len(token_ids)}
    for name, count in counts.items():
        values = arrays.get(name)
        if values is not None and (len(values) != count or (values < 0).any()):
            raise ShardError(f"{url} cannot be read: its {name} are not {count} numbers from 0")
    if "token_mask" in arrays and (arrays["token_mask"] > 1).any():
        raise ShardError(f"{url} cannot be read: its token_mask has other numbers than 0 and 1")
    optional = [arrays.get(name) for name in counts]
    return Index(numbers, offsets, row_offsets, token_ids, positions, kept, None, *optional)


def check_order(index: Index, url: str) -> Index:
    """Raises ShardError unless the numbers of the samples ascend."""
    if not _ascends(index.sample_idx):
        raise ShardError(f"{url} holds samples out of order")
    return index


def check_offsets(name: str, offsets: np.ndarray, samples: int, end: int, what: str, url: str) -> None:
    """Raises ShardError unless the offsets ascend from 0 to `end`. what: named in the error."""
    if len(offsets) != samples + 1 or offsets[0] != 0 or offsets[-1] != end or not _ascends(offsets):
        raise ShardError(f"{url} has {name} that do not divide its {what}")


def _ascends(values: np.ndarray) -> bool:
    """Compares neighbours, because the difference of two int64 may overflow."""
    return bool((values[1:] > values[:-1]).all())


def _parse_kept(data: np.ndarray, samples: int, url: str) -> list[dict]:
    try:
        kept = [json.loads(line) for line in data.tobytes().splitlines()]
    except (ValueError, RecursionError) as error:
        raise ShardError(f"{url} cannot be read: the kept fields of its samples are damaged: {error}") from error
    if len(kept) != samples or not all(isinstance(fields, dict) for fields in kept):
        raise ShardError(f"{url} cannot be read: its kept fields are not {samples} objects")
    return kept
