"""An export for SAELens, in the layout that its CacheActivationsRunner writes and its ActivationsStore reads.

A folder for `datasets.load_from_disk`: one column named as the hook, [context_size, d_model], and `token_ids`.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..convert import to_float16
from ..errors import MissingPackage

if TYPE_CHECKING:
    from ..run import Run

_DTYPES = ("float32", "float16")  # Arrow has no bf16
_FILE_BYTES = 500_000_000
_WRITE_BYTES = 1 << 26


@dataclass(frozen=True)
class Exported:
    """The hook_name, context_size and d_in for SAELens, and the counts of the export."""

    path: str
    hook_name: str
    context_size: int
    d_in: int
    contexts: int
    rows: int
    rows_left_out: int  # the last rows, which fill no context


def to_saelens(
    run: "Run",
    out_dir: str,
    layer: int,
    site: str | None = None,
    *,
    context_size: int = 128,
    dtype: str = "float32",
) -> Exported:
    """Writes one layer of the run to `out_dir`, which must be empty or missing.

    Rows follow each other in the order of storage, sample after sample, in contexts of `context_size`. A context may
    mix samples: SAELens shuffles rows, and each row was computed within its own sample. Without stored token ids the
    export has no column of them. Raises FileExistsError, MissingPackage, and ValueError for a wrong option or a value
    that float16 cannot hold. After an error during the export `out_dir` is empty.
    """
    datasets = _import_datasets()
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}, known are {', '.join(_DTYPES)}")
    if context_size < 1:
        raise ValueError(f"context_size is {context_size}; set it to at least 1")
    site = run.shards[0].site(site)
    hook = f"blocks.{layer}.hook_{site}"  # TransformerLens has a hook of each site
    os.makedirs(out_dir, exist_ok=True)
    if os.listdir(out_dir):
        raise FileExistsError(f"Failed to export to {out_dir}: it is not empty; choose another folder")
    has_tokens = run.index(run.shards[0]).row_tokens is not None
    shape = (context_size, run.d_model)
    features = {hook: datasets.Array2D(shape=shape, dtype=dtype)}
    if has_tokens:
        features["token_ids"] = datasets.Sequence(datasets.Value("int32"), length=context_size)
    writer = _Writer(datasets, datasets.Features(features), out_dir, context_size * run.d_model * 4)
    shards = [f"{shard.url} {shard.size_bytes}" for shard in run.shards]
    made_of = "\n".join([hook, str(context_size), dtype, *shards])
    left = 0
    try:
        for rows, tokens in _contexts(run, layer, site, context_size, has_tokens):
            left = len(rows) % context_size
            full = len(rows) - left
            values = to_float16(rows[:full], hook) if dtype == "float16" else rows[:full]
            columns: dict[str, np.ndarray] = {hook: values.reshape(-1, *shape)}
            if tokens is not None:
                columns["token_ids"] = tokens[:full].reshape(-1, context_size)
            writer.write(columns, full // context_size)
        contexts = writer.finish(hashlib.sha256(made_of.encode()).hexdigest()[:16])
    except BaseException:
        writer.discard()
        raise
    return Exported(out_dir, hook, context_size, run.d_model, contexts, contexts * context_size, left)


def _contexts(
    run: "Run", layer: int, site: str, context_size: int, has_tokens: bool
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yields fp32 rows and their token ids, some contexts at a time. Rows that fill no context come again next time."""
    step = max(1, _WRITE_BYTES // (context_size * run.d_model * 4)) * context_size
    rows = np.empty((0, run.d_model), np.float32)
    tokens = np.empty(0, np.int32) if has_tokens else None
    for shard in run.shards:
        ids = run.index(shard).row_tokens if has_tokens else None
        for begin in range(0, shard.num_rows, max(step, shard.block_rows)):
            end = min(begin + max(step, shard.block_rows), shard.num_rows)
            rows = np.concatenate([rows, shard.rows(site, layer, begin, end).to_float32()])
            if tokens is not None:
                tokens = np.concatenate([tokens, np.asarray(ids)[begin:end]])
            yield rows, tokens
            left = len(rows) % context_size
            rows = rows[len(rows) - left :].copy()
            if tokens is not None:
                tokens = tokens[len(tokens) - left :].copy()
        shard.release()


class _Writer:
    """Writes Arrow files of a bounded size, and the two JSON files that turn a folder into a dataset."""

    def __init__(self, datasets, features, folder: str, context_bytes: int):
        self._datasets, self._features, self._folder = datasets, features, folder
        self._contexts_per_file = max(1, _FILE_BYTES // context_bytes)
        self._names: list[str] = []
        self._writer = None
        self._in_file = self._total = 0

    def write(self, columns: dict[str, np.ndarray], count: int) -> None:
        if count == 0 and self._names:
            return
        if self._writer is None:
            self._names.append(f"part-{len(self._names):05d}.arrow")
            path = os.path.join(self._folder, self._names[-1])
            self._writer = self._datasets.arrow_writer.ArrowWriter(features=self._features, path=path)
            self._in_file = 0
        if count:
            self._writer.write_batch(columns)
        self._in_file, self._total = self._in_file + count, self._total + count
        if self._in_file >= self._contexts_per_file:
            self._end_file()

    def finish(self, fingerprint: str) -> int:
        """fingerprint: identifies the dataset for `datasets`. Returns the number of contexts."""
        self._end_file()
        total = len(self._names)
        names = [f"data-{number:05d}-of-{total:05d}.arrow" for number in range(total)]
        for was, name in zip(self._names, names, strict=True):
            os.rename(os.path.join(self._folder, was), os.path.join(self._folder, name))
        self._datasets.DatasetInfo(features=self._features).write_to_directory(self._folder)
        state = {
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": fingerprint,
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        with open(os.path.join(self._folder, "state.json"), "w", encoding="ascii") as file:
            json.dump(state, file, indent=2)
        return self._total

    def discard(self) -> None:
        """Deletes all files of the folder."""
        if self._writer is not None:
            self._writer.close()
        for name in os.listdir(self._folder):
            os.unlink(os.path.join(self._folder, name))

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.finalize()
            self._writer = None


def _import_datasets():
    try:
        import datasets
        import datasets.arrow_writer

        return datasets
    except ImportError:
        raise MissingPackage("export to SAELens", "datasets") from None
