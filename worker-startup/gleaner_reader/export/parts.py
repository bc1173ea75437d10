"""An export to safetensors files of a bounded size, in the order of storage or shuffled for training."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..format.convert import Rows
from ..run.pieces import as_float, columns_of, pieces, site_of
from .npy import NpyExport
from .samples import SAMPLES, write_samples
from .unfinished import Unfinished, bytes_of, settings_of

if TYPE_CHECKING:
    from ..run.run import Run

DTYPES = ("float32", "float16", "bfloat16")
_NAMES = {"<f4": "F32", "<f2": "F16", "<u2": "BF16", "<i8": "I64", "<i4": "I32", "<u4": "U32"}
_PART_BYTES = 1 << 30
_BATCH_BYTES = 1 << 25


@dataclass(frozen=True)
class PartsExport(NpyExport):
    """`export.json` of the folder. `files["rows"]` is the pattern of the parts, and `parts` their number."""

    parts: int
    seed: int | None  # of the order; None for the order of storage


def to_safetensors(
    run: "Run",
    out_dir: str,
    layer: int,
    site: str | None = None,
    *,
    dtype: str = "float32",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PartsExport:
    """Writes one layer of the run to `part-00001.safetensors` and so on, each about a gigabyte.

    A part has `activations` [rows, width] and the arrays of `to_npy` with the origin of each row, in the order of
    storage. Args, Raises and interruptions are those of `to_npy`, with one more dtype: "bfloat16" for a run that stores
    bf16.

    >>> to_safetensors(run, "parts", layer=12, dtype="bfloat16").parts
    1
    """
    site = check_parts(run, layer, site, dtype)
    settings = settings_of(run, "safetensors", site=site, layer=layer, dtype=dtype)
    unfinished = Unfinished(out_dir, settings, bytes_of(run, dtype, site, columns=len(columns_of(run))))
    done = unfinished.done.get("rows", 0)

    def tensors() -> Iterator[tuple[dict[str, np.ndarray], dict]]:
        for piece in pieces(run, site, layer, done):
            values = as_dtype(piece.rows, dtype, f"{site}.{layer}")
            yield {"activations": values, **piece.columns}, {"rows": piece.end}

    return export_parts(run, unfinished, tensors(), plan_export(run, site, layer, dtype), progress)


def to_shuffled_safetensors(
    run: "Run",
    out_dir: str,
    layer: int,
    site: str | None = None,
    *,
    dtype: str = "float32",
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PartsExport:
    """`to_safetensors` in the order of one epoch of `run.batches(layer, seed=seed)`.

    A part has `activations`, and int64 `row`: which row of the run each is, as `samples.jsonl` and `run.rows` count.

    >>> to_shuffled_safetensors(run, "shuffled", layer=12, seed=1).seed
    1
    """
    site = check_parts(run, layer, site, dtype)
    settings = settings_of(run, "shuffled", site=site, layer=layer, dtype=dtype, seed=seed)
    unfinished = Unfinished(out_dir, settings, bytes_of(run, dtype, site, columns=1))
    rows_at_once = max(1, _BATCH_BYTES // (max(run.widths[site], 1) * 4))
    options = {"batch_rows": rows_at_once, "seed": seed, "drop_last": False}

    def tensors() -> Iterator[tuple[dict[str, np.ndarray], dict]]:
        rows = unfinished.done.get("rows", 0)
        with run.batches(layer, site, state=unfinished.done.get("state"), **options) as batches:
            for stored, numbers in iter(batches.next_rows, None):  # until next_rows raises StopIteration
                rows += len(numbers)
                values = as_dtype(stored, dtype, f"{site}.{layer}")
                yield {"activations": values, "row": numbers}, {"rows": rows, "state": batches.state()}

    return export_parts(run, unfinished, tensors(), plan_export(run, site, layer, dtype, seed), progress)


def part_name(number: int) -> str:
    return f"part-{number:05d}.safetensors"


def plan_export(
    run: "Run", site: str, layer: int, dtype: str, seed: int | None = None, **more_files: str
) -> PartsExport:
    """The export of a layer before its first part. more_files: the patterns of files beside the parts."""
    files = {"rows": "part-*.safetensors", "samples": SAMPLES} | more_files
    sizes = run.num_rows, run.widths[site], run.num_samples
    return PartsExport(run.url, site, layer, dtype, *sizes, files, 0, seed)


def export_parts(
    run: "Run",
    unfinished: Unfinished,
    tensors: Iterator[tuple[dict[str, np.ndarray], dict]],
    planned: PartsExport,
    progress: Callable[[int, int], None],
    beside: Callable[[int], None] = lambda part: None,
) -> PartsExport:
    """Writes a part whenever the tensors have `_PART_BYTES`, and the place after them.

    beside(part): writes the other files of the part of that number.
    """
    waiting: list[dict[str, np.ndarray]] = []
    parts, size, place = unfinished.done.get("parts", 0), 0, dict(unfinished.done)

    def write() -> None:
        nonlocal parts, size
        together = {name: np.concatenate([each[name] for each in waiting]) for name in waiting[0]}
        write_safetensors(unfinished.path(part_name(parts + 1)), together)
        beside(parts + 1)
        parts, size = parts + 1, 0
        waiting.clear()
        unfinished.keep(**(place | {"parts": parts}))

    for arrays, after in tensors:
        waiting.append(arrays)
        place, size = after, size + sum(array.nbytes for array in arrays.values())
        if size >= _PART_BYTES:
            write()
        progress(after["rows"], run.num_rows)
    if waiting:
        write()
    write_samples(run, unfinished)
    export = replace(planned, parts=parts)
    unfinished.finish(asdict(export))
    return export


def check_parts(run: "Run", layer: int, site: str | None, dtype: str) -> str:
    """The site. Raises ValueError for a layer, a site or a dtype that the run lacks."""
    site = site_of(run, layer, site)
    stored = run.dtypes[site]
    if dtype not in DTYPES or (dtype == "bfloat16" and stored != "bf16"):
        known = ", ".join(DTYPES if stored == "bf16" else DTYPES[:2])
        raise ValueError(f"dtype is {dtype!r}, and for a run that stores {stored} these are known: {known}")
    return site


def as_dtype(rows: Rows, dtype: str, what: str) -> np.ndarray:
    """The values as float32, float16, or the bits of bf16."""
    if dtype == "bfloat16":
        return rows.stored
    return as_float(rows.to_float32(), dtype, what)


def write_safetensors(path: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes a whole file or none."""
    header, begin = {}, 0
    for name, array in tensors.items():
        end = begin + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype.str], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{path}.new", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
