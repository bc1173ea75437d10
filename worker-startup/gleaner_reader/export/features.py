"""Exports of stored features: the cache that delphi's loader reads, and one JSON file for each feature.

In delphi (github.com/EleutherAI/delphi), latents/cache.py `save_splits` writes a cache, and latents/loader.py reads it.
"""

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..format.convert import to_float16
from .parts import write_safetensors
from .unfinished import Unfinished, settings_of

if TYPE_CHECKING:
    from ..run.run import Run

_ROWS_AT_ONCE = 1 << 14
_FEATURES_AT_ONCE = 256
_LEAST = 1e-5  # delphi counts no activation up to it


@dataclass(frozen=True)
class FeaturesExport:
    """`export.json` of the folder. left_out: rows that fill no context. dropped: activations delphi takes for 0."""

    run: str
    name: str
    layer: int
    features: int
    rows: int
    contexts: int = 0
    left_out: int = 0
    dropped: int = 0


def to_delphi(
    run: "Run",
    out_dir: str,
    layer: int,
    name: str | None = None,
    *,
    context_size: int = 256,
    splits: int = 5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeaturesExport:
    """Writes features as a cache of delphi: pass `out_dir/latents` as the raw_dir of its LatentDataset.

    `latents/layers.12/0_3275.safetensors` has features 0 to 3275, in as many files as `splits`. delphi wants contexts
    of one length: samples are cut into them, and the rows behind the last whole context of a sample are left out.

    Args:
        name: of the features in the spec; needed if the run has several.
        context_size: tokens of a context, a multiple of the `example_ctx_len` of delphi.
        run, out_dir, layer, progress: as `to_npy` takes them.

    Raises:
        FileExistsError, ValueError: as `to_npy`; ValueError also for a run without a row for each token.

    >>> to_delphi(run, "delphi", layer=12, context_size=64).contexts  # doctest: +SKIP
    31250
    """
    name = run.features_name(layer, name)
    if context_size < 1 or splits < 1:
        raise ValueError(f"context_size is {context_size} and splits {splits}; set both to at least 1")
    output = run.outputs[name]
    bounds = np.linspace(0, output["d_sae"], splits + 1).astype(np.int64)
    settings = settings_of(run, "delphi", name=name, layer=layer, context_size=context_size, splits=splits)
    unfinished = Unfinished(out_dir, settings, 4 * run.num_tokens * splits)
    kinds = {"tokens": "<i4"} | {f"{kind}.{n}": t for kind, t in (("at", "<u4"), ("of", "<f2")) for n in range(splits)}
    done: dict[str, Any] = unfinished.done or {
        "shard": 0,
        "contexts": 0,
        "dropped": 0,
        "sizes": dict.fromkeys(kinds, 0),
    }
    for kind, size in done["sizes"].items():
        with open(unfinished.path(kind), "ab") as file:
            file.truncate(size)
    contexts, dropped = done["contexts"], done["dropped"]
    for number in range(done["shard"], len(run.shards)):
        shard, index = run.shards[number], run.shard_index(number)
        if index.positions is None or index.token_ids is None or len(index.token_ids) != shard.num_rows:
            raise ValueError(f'{shard.url} has no row for each token, as delphi needs it: store `tokens` "all"')
        lengths = np.diff(index.sample_offsets)
        whole, sample = lengths // context_size, np.repeat(np.arange(len(lengths)), lengths)
        place, within = np.divmod(index.positions, context_size)
        is_whole = place < whole[sample]
        context = (contexts + np.cumsum(whole) - whole)[sample] + place
        contexts += int(whole.sum())
        with contextlib.ExitStack() as stack:
            files = {kind: stack.enter_context(open(unfinished.path(kind), "ab")) for kind in kinds}
            files["tokens"].write(index.token_ids[is_whole].astype("<i4").tobytes())
            for begin in range(0, shard.num_rows, max(_ROWS_AT_ONCE, shard.block_rows(name))):
                end = min(begin + max(_ROWS_AT_ONCE, shard.block_rows(name)), shard.num_rows)
                ids = shard.rows(f"{name}_ids", layer, begin, end).stored
                values = shard.rows(name, layer, begin, end).to_float32()
                is_active = is_whole[begin:end, None] & (ids >= 0) & (ids < output["d_sae"])
                dropped += int((is_active & (values <= _LEAST)).sum())
                rows, columns = np.nonzero(is_active & (values > _LEAST))
                found, strength = ids[rows, columns], to_float16(values[rows, columns], f"{name}.{layer}")
                split_of, rows = np.searchsorted(bounds, found, "right") - 1, rows + begin
                for split in np.unique(split_of).tolist():
                    here = split_of == split
                    at = context[rows[here]], within[rows[here]], found[here] - bounds[split]
                    files[f"at.{split}"].write(np.stack(at, 1).astype("<u4").tobytes())
                    files[f"of.{split}"].write(strength[here].astype("<f2").tobytes())
                progress(int(run.row_offsets[number]) + end, run.num_rows)
        sizes = {kind: os.path.getsize(unfinished.path(kind)) for kind in kinds}
        unfinished.keep(shard=number + 1, contexts=contexts, dropped=dropped, sizes=sizes)
    folder = unfinished.path(os.path.join("latents", f"layers.{layer}" + _suffix(output["site"])))
    os.makedirs(folder, exist_ok=True)
    held = {kind: _mapped(unfinished.path(kind), dtype) for kind, dtype in kinds.items()}
    for split, (first, after) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        tensors = {"locations": held[f"at.{split}"].reshape(-1, 3), "tokens": held["tokens"].reshape(-1, context_size)}
        path = os.path.join(folder, f"{first}_{after - 1}.safetensors")
        write_safetensors(path, tensors | {"activations": held[f"of.{split}"]})
    model = str((run.model or {}).get("name", ""))
    # Its config writes cache_ctx_len, and its loader reads ctx_len.
    config = {"dataset_repo": run.url, "dataset_split": "", "dataset_name": "", "dataset_column": "text"}
    config |= {"batch_size": 32, "cache_ctx_len": context_size, "ctx_len": context_size, "n_splits": splits}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config | {"n_tokens": contexts * context_size, "model_name": model}, file)
    del held
    for kind in kinds:
        os.unlink(unfinished.path(kind))
    export = FeaturesExport(run.url, name, layer, output["d_sae"], contexts * context_size, contexts)
    export = replace(export, left_out=run.num_rows - export.rows, dropped=dropped)
    unfinished.finish(asdict(export))
    return export


def to_feature_json(
    run: "Run",
    out_dir: str,
    layer: int,
    ids: Sequence[int] | None = None,
    name: str | None = None,
    *,
    tokenizer: Any = None,
    n: int = 20,
    context: int = 12,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeaturesExport:
    """Writes `ID.json` for each feature: its facts as `Run.feature` has them, and `examples`.

    An example is one of the n strongest rows, and up to `context` rows of its sample before and after: `tokens`, or
    `token_ids` without a tokenizer, `values` of the feature there, 0 where it is not among the stored ones, and
    `stream`, `sample` and `position`.

    Args:
        ids: numbers of features; None for all.
        tokenizer: as `Run.rows` takes it.
        run, out_dir, layer, name, progress: as `to_delphi` takes them.

    Raises:
        FileExistsError, ValueError: as `to_delphi`.

    >>> to_feature_json(run, "features", 12, ids=[3, 5]).features  # doctest: +SKIP
    2
    """
    name = run.features_name(layer, name)
    ids = list(range(run.outputs[name]["d_sae"]) if ids is None else ids)
    settings = settings_of(run, "features", name=name, layer=layer, ids=ids, n=n, context=context)
    unfinished = Unfinished(out_dir, settings, 0)
    stored = run.layer(layer, f"{name}_ids"), run.layer(layer, name, dtype="float32")
    for begin in range(unfinished.done.get("features", 0), len(ids), _FEATURES_AT_ONCE):
        features = run.features(layer, ids[begin : begin + _FEATURES_AT_ONCE], name=name, n=n)
        tops = np.concatenate([feature.top.rows for feature in features.values()])
        shards = np.searchsorted(run.row_offsets, tops, "right") - 1
        around = {
            int(top): _around(run, int(shard), int(top), context) for top, shard in zip(tops, shards, strict=True)
        }
        numbers = np.unique(np.concatenate([np.empty(0, np.int64), *around.values()]))
        found, values = (each[numbers] for each in stored)
        rows = dict(zip(numbers.tolist(), run.rows(numbers, context=0, tokenizer=tokenizer), strict=True))
        for feature in features.values():
            facts = {key: value for key, value in vars(feature).items() if key != "top"}
            facts |= {"histogram": feature.histogram.tolist(), "examples": []}
            for top in feature.top.rows.tolist():
                places = np.searchsorted(numbers, around[top])
                strengths = np.where(found[places] == feature.id, values[places], 0).max(1)
                each = [rows[row] for row in around[top].tolist()]
                text = (
                    {"tokens": [row.token for row in each]}
                    if tokenizer
                    else {"token_ids": [row.token_id for row in each]}
                )
                origin = {key: getattr(rows[top], key) for key in ("stream", "sample", "position")}
                facts["examples"].append(origin | text | {"values": strengths.tolist()})
            with open(unfinished.path(f"{feature.id}.json"), "w", encoding="utf-8") as file:
                json.dump(facts, file, ensure_ascii=False)
        done = min(begin + _FEATURES_AT_ONCE, len(ids))
        unfinished.keep(features=done)
        progress(done, len(ids))
    export = FeaturesExport(run.url, name, layer, len(ids), run.num_rows)
    unfinished.finish(asdict(export))
    return export


def _around(run: "Run", shard: int, row: int, context: int) -> np.ndarray:
    """int64: the rows of the same sample, at most `context` before and after."""
    offsets = run.shard_index(shard).row_offsets + run.row_offsets[shard]
    sample = int(np.searchsorted(offsets, row, "right")) - 1
    return np.arange(max(row - context, offsets[sample]), min(row + context + 1, offsets[sample + 1]))


def _mapped(path: str, dtype: str) -> np.ndarray:
    return np.memmap(path, dtype, "r") if os.path.getsize(path) else np.empty(0, dtype)


def _suffix(site: str) -> str:
    """delphi calls the residual stream after a layer by the layer alone."""
    return "" if site == "resid_post" else f".{site}"
