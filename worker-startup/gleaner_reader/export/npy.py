"""An export to plain numpy files: one array of rows, and arrays with the origin of each row."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..convert import to_float16
from ..errors import ShardError

if TYPE_CHECKING:
    from ..run import Run

DTYPES = ("float32", "float16")  # numpy has no bf16
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class NpyExport:
    """`export.json` of the folder. `files` names the arrays; each has one entry for each row."""

    run: str
    site: str
    layer: int
    dtype: str
    rows: int
    d_model: int
    samples: int
    files: dict[str, str]


def to_npy(
    run: "Run",
    out_dir: str,
    layer: int,
    site: str | None = None,
    *,
    dtype: str = "float32",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NpyExport:
    """Writes one layer of the run to `out_dir`, which must not exist.

    `activations.npy` is [rows, d_model], float32 or float16, in the order of storage. `stream.npy`, `sample_idx.npy`,
    `position.npy` and `token_id.npy` are int64 [rows]; the last two are absent where rows are means of tokens.
    `np.load(path, mmap_mode="r")` reads rows without loading the file. progress(written, total): called with the
    written rows and all rows. Raises FileExistsError, and ValueError for an unknown layer, site or dtype and for a
    value that float16 cannot hold. After an error `out_dir` does not exist.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, known are {', '.join(DTYPES)}")
    run.layer(layer, site)  # Raises ValueError for a layer or a site that the run lacks.
    site = run.shards[0].site(site)
    if os.path.exists(out_dir):
        raise FileExistsError(f"Failed to export to {out_dir}: it exists; choose another folder, or delete it")
    unfinished = f"{out_dir.rstrip('/')}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(unfinished)
    try:
        export = _write(run, unfinished, layer, site, dtype, progress)
        with open(os.path.join(unfinished, "export.json"), "w", encoding="utf-8") as file:
            json.dump(asdict(export), file, indent=2)
        os.rename(unfinished, out_dir)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return export


def _write(
    run: "Run", folder: str, layer: int, site: str, dtype: str, progress: Callable[[int, int], None]
) -> NpyExport:
    has_tokens = run.index(run.shards[0]).row_tokens is not None
    names = ["stream", "sample_idx", *(["position", "token_id"] if has_tokens else [])]
    total = run.num_rows

    def new_file(name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        if total == 0:
            np.save(os.path.join(folder, f"{name}.npy"), np.empty(shape, kind))
            return np.empty(shape, kind)
        return np.lib.format.open_memmap(os.path.join(folder, f"{name}.npy"), "w+", kind, shape)

    values = new_file("activations", dtype, (total, run.d_model))
    columns = {name: new_file(name, "int64", (total,)) for name in names}
    place = 0
    for stream, shards in run.streams.items():
        for shard in shards:
            index = run.index(shard)
            columns["stream"][place : place + shard.num_rows] = stream
            rows_of_sample = np.diff(index.row_offsets)
            columns["sample_idx"][place : place + shard.num_rows] = np.repeat(index.sample_idx, rows_of_sample)
            if has_tokens:
                if index.positions is None or index.row_tokens is None:
                    raise ShardError(f"{shard.url} lacks the positions that other shards of the run have")
                columns["position"][place : place + shard.num_rows] = index.positions
                columns["token_id"][place : place + shard.num_rows] = index.row_tokens
            step = max(_ROWS_AT_ONCE, shard.block_rows)
            for begin in range(0, shard.num_rows, step):
                end = min(begin + step, shard.num_rows)
                rows = shard.rows(site, layer, begin, end).to_float32()
                what = f"{site}.{layer}"
                values[place + begin : place + end] = to_float16(rows, what) if dtype == "float16" else rows
                progress(place + end, total)
            place += shard.num_rows
            shard.release()
    files = {name: f"{name}.npy" for name in ["activations", *names]}
    return NpyExport(run.url, site, layer, dtype, total, run.d_model, run.num_samples, files)
