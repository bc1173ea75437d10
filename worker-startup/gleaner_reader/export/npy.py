"""An export to plain numpy files: one array of rows, and arrays with the origin of each row."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..run.pieces import as_float, columns_of, pieces, site_of
from .samples import SAMPLES, write_samples
from .unfinished import Unfinished, bytes_of, settings_of

if TYPE_CHECKING:
    from ..run.run import Run

DTYPES = ("float32", "float16")  # numpy has no bf16
_KEEP_EVERY_S = 5.0


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
    """Writes one layer of the run to `.npy` files, which `np.load(path, mmap_mode="r")` reads row by row.

    `activations.npy` is [rows, width], in the order of storage. `stream.npy`, `sample_idx.npy`, `position.npy` and
    `token_id.npy` are int64 [rows]; the last two are absent where rows are pools of tokens. A run with one row for each
    span has `span_idx.npy` too, and a run with a mask `mask.npy`. `samples.jsonl` has a line for each sample: `stream`,
    `sample`, its `rows` from begin to end, and `kept`, the fields that the run keeps. An export that was interrupted
    leaves `out_dir.unfinished`, and the same call goes on there.

    Args:
        run: an open run.
        out_dir: the folder to write, which must not exist.
        layer: the number of the layer, from 0.
        site: such as "resid_post"; needed if the run has several.
        dtype: "float32" or "float16".
        progress: called with the number of rows that are written, and of all.

    Raises:
        FileExistsError: `out_dir` exists.
        ValueError: the run has no such layer or site, the dtype is unknown, or float16 cannot hold a value.

    >>> export = to_npy(run, "layer-12", layer=12)
    >>> np.load("layer-12/activations.npy", mmap_mode="r").shape == (export.rows, 8)
    True
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, known are {', '.join(DTYPES)}")
    site = site_of(run, layer, site)
    columns = columns_of(run)
    size_bytes = bytes_of(run, dtype, site, columns=len(columns))
    unfinished = Unfinished(out_dir, settings_of(run, "numpy", site=site, layer=layer, dtype=dtype), size_bytes)
    names = ["activations", *columns]
    _write(run, unfinished, layer, site, dtype, progress)
    write_samples(run, unfinished)
    files = {name: f"{name}.npy" for name in names} | {"samples": SAMPLES}
    export = NpyExport(run.url, site, layer, dtype, run.num_rows, run.widths[site], run.num_samples, files)
    unfinished.finish(asdict(export))
    return export


def _write(
    run: "Run",
    unfinished: Unfinished,
    layer: int,
    site: str,
    dtype: str,
    progress: Callable[[int, int], None],
) -> None:
    total, done = run.num_rows, unfinished.done.get("rows", 0)

    def open_array(name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        path = unfinished.path(f"{name}.npy")
        if done:
            return np.load(path, mmap_mode="r+")
        if total == 0:
            np.save(path, np.empty(shape, kind))
            return np.empty(shape, kind)
        return np.lib.format.open_memmap(path, "w+", kind, shape)

    arrays = {"activations": open_array("activations", dtype, (total, run.widths[site]))}
    arrays |= {name: open_array(name, "int64", (total,)) for name in columns_of(run)}

    def keep(rows: int) -> None:
        for array in arrays.values():
            if isinstance(array, np.memmap):
                array.flush()
        unfinished.keep(rows=rows)

    kept_at = time.monotonic()
    for piece in pieces(run, site, layer, done):
        here = slice(piece.begin, piece.end)
        arrays["activations"][here] = as_float(piece.rows.to_float32(), dtype, f"{site}.{layer}")
        for name, column in piece.columns.items():
            arrays[name][here] = column
        if time.monotonic() - kept_at >= _KEEP_EVERY_S:
            keep(piece.end)
            kept_at = time.monotonic()
        progress(piece.end, total)
