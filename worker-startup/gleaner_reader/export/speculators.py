"""An export for speculators: the folder that its `--data-path` names, as its offline preparation writes it.

A dataset of Arrow files with `input_ids`, `loss_mask` and `seq_len` of each sample, and for sample N of the dataset
`hidden_states/hs_N.safetensors` with `hidden_states` [tokens, layers, d_model] and `token_ids` [tokens].
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..format.convert import Rows
from ..format.index import Index
from .arrow import ArrowFolder, import_datasets
from .parts import write_safetensors
from .samples import write_samples
from .unfinished import Unfinished, bytes_of, settings_of

if TYPE_CHECKING:
    from ..run.run import Run

_KEPT_BYTES = 1 << 28  # of hidden states, after which an interrupted export goes on
_ROWS_AT_ONCE = 1 << 14
_FOLDER = "hidden_states"
_SITES = ("resid_pre", "resid_post")


@dataclass(frozen=True)
class SpeculatorsExport:
    """`export.json` of the folder. speculators counts layers from 1: layer L is resid_post L - 1, or resid_pre L.

    target_layer_ids: the value of its `--target-layer-ids`. last_layer_id: the number of layers of the model, whose
    output speculators takes as the last hidden state.
    """

    path: str
    target_layer_ids: list[int]
    last_layer_id: int
    dtype: str
    d_model: int
    samples: int
    tokens: int


def to_speculators(
    run: "Run",
    out_dir: str,
    layers: Sequence[int] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SpeculatorsExport:
    """Writes every sample of the run as the folder that the `--data-path` of speculators names.

    Values are bf16 if the run stores bf16, otherwise float32. The tokens that the `mask` of the run marks are in the
    loss, or all tokens of a run without a mask. Line N of `samples.jsonl`, as `to_npy` writes it, is of `hs_N`. An
    export that was interrupted leaves `out_dir.unfinished`, and the same call goes on there.

    Args:
        run: an open run.
        out_dir: the folder to write, which must not exist.
        layers: as speculators counts them, from 1, the last one being the number of layers of the model; None for all
            stored layers of the residual stream.
        progress: called with the number of rows that are written, and of all.

    Raises:
        FileExistsError: `out_dir` exists.
        ValueError: the run lacks one of the layers, or has no row for some tokens.
        MissingPackage: datasets is not installed.

    >>> to_speculators(run, "speculators").target_layer_ids  # doctest: +SKIP
    [5]
    """
    datasets = import_datasets("speculators")
    names = _names(run, layers)
    _tokens_of_rows(run.index(run.first), run.first.url)
    ids = sorted(names)
    settings = settings_of(run, "speculators", layers=ids)
    stored = [site for site, _ in names.values()]
    dtype = "bfloat16" if run.dtypes[stored[0]] == "bf16" else "float32"
    unfinished = Unfinished(out_dir, settings, bytes_of(run, dtype, *stored))
    os.makedirs(unfinished.path(_FOLDER), exist_ok=True)
    column = datasets.Sequence(datasets.Value("int64"))
    features = {"input_ids": column, "loss_mask": column, "seq_len": datasets.Value("int64")}
    dataset = ArrowFolder(datasets, datasets.Features(features), unfinished, "torch")
    unkept = 0
    for place, sample in enumerate(_samples(run, [names[each] for each in ids], dataset.rows), dataset.rows):
        path = unfinished.path(os.path.join(_FOLDER, f"hs_{place}.safetensors"))
        write_safetensors(path, {"hidden_states": sample.values, "token_ids": sample.token_ids})
        length = [len(sample.token_ids)]
        dataset.write({"input_ids": [sample.token_ids], "loss_mask": [sample.loss_mask], "seq_len": length}, 1)
        unkept += sample.values.nbytes
        if unkept >= _KEPT_BYTES:
            dataset.end_file()
            unkept = 0
        progress(sample.end, run.num_rows)
    dataset.write({}, 0)
    samples = dataset.finish(settings)
    write_samples(run, unfinished)
    export = SpeculatorsExport(out_dir, ids[:-1], ids[-1], dtype, run.widths[stored[0]], samples, run.num_rows)
    unfinished.finish(asdict(export))
    return export


@dataclass(frozen=True)
class _Sample:
    token_ids: np.ndarray  # int64 [tokens]
    loss_mask: np.ndarray  # int64 [tokens]: 1 for each token in the loss
    values: np.ndarray  # [tokens, layers, d_model], the bits of bf16 or float32
    end: int  # row of the run after the sample


def _names(run: "Run", layers: Sequence[int] | None) -> dict[int, tuple[str, int]]:
    """(site, layer) of each layer as speculators counts them."""
    stored = {layer + (site == "resid_post"): (site, layer) for site, layer in run.first.names if site in _SITES}
    wanted = sorted(stored) if layers is None else list(layers)
    if absent := [each for each in wanted if each not in stored]:
        raise ValueError(
            f"layer {absent[0]} of speculators is resid_post {absent[0] - 1} or resid_pre {absent[0]}, and {run.url} "
            f"stores neither; its layers for speculators are {', '.join(map(str, sorted(stored))) or 'none'}"
        )
    if len(set(wanted)) < 2:
        raise ValueError(f"speculators needs a target layer and the last layer, and {run.url} gives it {wanted}")
    return {each: stored[each] for each in sorted(wanted)}


def _samples(run: "Run", names: list[tuple[str, int]], begin: int) -> Iterator[_Sample]:
    """The samples of the run from number `begin` of all stored samples."""
    before = 0
    for number, shard in enumerate(run.shards):
        first, before = max(0, begin - before), before + shard.num_samples
        if first >= shard.num_samples:
            continue
        index, offset = run.index(shard), int(run.row_offsets[number])
        tokens = _tokens_of_rows(index, shard.url)
        mask = np.ones(len(tokens), np.int64) if index.token_mask is None else index.token_mask.astype(np.int64)
        while first < shard.num_samples:
            # At least one sample, and as many as fit.
            fit = int(np.searchsorted(index.row_offsets, index.row_offsets[first] + _ROWS_AT_ONCE, "right")) - 1
            last = max(first + 1, fit)
            rows_begin, rows_end = (int(row) for row in index.row_offsets[[first, last]])
            values = np.stack([_values(rows) for rows in shard.rows_of_each(names, rows_begin, rows_end)], axis=1)
            for sample in range(first, last):
                rows = slice(int(index.row_offsets[sample]), int(index.row_offsets[sample + 1]))
                own = slice(rows.start - rows_begin, rows.stop - rows_begin)
                yield _Sample(tokens[rows].astype(np.int64), mask[rows], values[own], offset + rows.stop)
            first = last
        shard.release()


def _tokens_of_rows(index: Index, url: str) -> np.ndarray:
    if index.row_tokens is None or not np.array_equal(index.row_offsets, index.sample_offsets):
        raise ValueError(f"speculators needs a row for each token, and {url} has rows of some tokens alone")
    return index.row_tokens


def _values(rows: Rows) -> np.ndarray:
    return rows.stored if rows.stored.dtype == np.uint16 else rows.to_float32()
