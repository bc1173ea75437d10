"""Exports of stored features: the cache that delphi's loader reads, and one JSON file for each feature.

In delphi (github.com/EleutherAI/delphi), latents/cache.py `save_splits` writes a cache, and latents/loader.py reads it.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..format.convert import to_float16
from ..run.pieces import columns_of
from .parts import write_safetensors
from .samples import write_samples
from .unfinished import Unfinished, settings_of

if TYPE_CHECKING:
    from ..run.run import Run

_SPLITS = 5  # files of delphi
_FEATURES_AT_ONCE, _EXAMPLES, _AROUND = 256, 20, 12  # of JSON
_LEAST = 1e-5  # delphi counts no activation up to it
_ACTIVE = np.dtype([("at", "<u4", 3), ("value", "<f2")])


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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeaturesExport:
    """Writes features as a cache of delphi: pass `out_dir/latents` as the raw_dir of its LatentDataset.

    Memory holds one of its files, a fifth of the features. Samples are cut into contexts of `context_size` tokens, a
    multiple of delphi's `example_ctx_len`, and the rest of a sample is left out; `samples.jsonl` has the `contexts` of
    each. name: of the features in the spec; needed if the run has several. The rest is as in `to_npy`; ValueError also
    where a token has no row.

    >>> to_delphi(run, "delphi", layer=12, context_size=64).contexts  # doctest: +SKIP
    31250
    """
    name = run.features_name(layer, name)
    if context_size < 1:
        raise ValueError(f"context_size is {context_size}; set it to at least 1")
    if "position" not in columns_of(run) or run.num_tokens != run.num_rows:
        raise ValueError(f'{run.url} has no row for each token, as delphi needs it: store `tokens` "all"')
    output, what = run.outputs[name], f"{name}.{layer}"
    bounds = np.linspace(0, output["d_sae"], _SPLITS + 1).astype(np.int64)
    settings = settings_of(run, "delphi", name=name, layer=layer, context_size=context_size, splits=_SPLITS)
    unfinished = Unfinished(out_dir, settings, 4 * run.num_tokens * _SPLITS)
    done: dict[str, Any] = {"rows": 0, "contexts": 0, "dropped": 0, "sizes": [0] * (_SPLITS + 1)} | unfinished.done
    # delphi calls the residual stream after a layer by the layer alone.
    module = unfinished.path(f"latents/layers.{layer}" + f".{output['site']}".removesuffix(".resid_post"))
    os.makedirs(module, exist_ok=True)
    os.makedirs(unfinished.path("parts"), exist_ok=True)
    parts = [unfinished.path(f"parts/{number}") for number in range(_SPLITS + 1)]  # the last one has the tokens
    for path, size in zip(parts, done["sizes"], strict=True):
        with open(path, "ab") as file:
            file.truncate(size)
    for piece, rows, ids, values in run.active(layer, name, begin=done["rows"]):
        here = slice(piece.begin_in_shard, piece.begin_in_shard + len(piece.rows.stored))
        lengths, position = np.diff(piece.index.sample_offsets), piece.columns["position"]
        is_whole = position < np.repeat(lengths // context_size * context_size, lengths)[here]
        begins = is_whole & (position % context_size == 0)
        context = done["contexts"] - 1 + np.cumsum(begins)
        is_active = is_whole[rows] & (values > _LEAST)
        done["dropped"] += int((is_whole[rows] & (values <= _LEAST)).sum())
        rows, ids, split = rows[is_active], ids[is_active], np.searchsorted(bounds, ids[is_active], "right") - 1
        found = np.empty(len(rows), _ACTIVE)
        found["at"] = np.stack([context[rows], position[rows] % context_size, ids - bounds[split]], 1)
        found["value"] = to_float16(values[is_active], what)
        tokens = piece.columns["token_id"][is_whole].astype("<i4")
        for path, array in zip(parts, [*(found[split == n] for n in range(_SPLITS)), tokens], strict=True):
            with open(path, "ab") as file:
                file.write(array.tobytes())
        done["contexts"] += int(begins.sum())
        unfinished.keep(**done | {"rows": piece.end, "sizes": [os.path.getsize(path) for path in parts]})
        progress(piece.end, run.num_rows)
    tokens = np.fromfile(parts[-1], "<i4").reshape(-1, context_size)
    for path, first, after in zip(parts, bounds, bounds[1:], strict=False):
        found = np.fromfile(path, _ACTIVE)
        tensors = {"locations": found["at"], "tokens": tokens, "activations": found["value"]}
        write_safetensors(os.path.join(module, f"{first}_{after - 1}.safetensors"), tensors)
    # Its config writes cache_ctx_len, and its loader reads ctx_len.
    config = {"dataset_repo": run.url, "dataset_split": "", "dataset_name": "", "dataset_column": "text"}
    config |= {"batch_size": 32, "cache_ctx_len": context_size, "ctx_len": context_size, "n_splits": _SPLITS}
    config |= {"n_tokens": tokens.size, "model_name": str((run.model or {}).get("name", ""))}
    with open(os.path.join(module, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    write_samples(run, unfinished, context_size)
    sizes = tokens.size, len(tokens), run.num_rows - tokens.size, done["dropped"]
    export = FeaturesExport(run.url, name, layer, output["d_sae"], *sizes)
    unfinished.finish(asdict(export))
    shutil.rmtree(os.path.join(out_dir, "parts"))
    return export


def to_feature_json(
    run: "Run",
    out_dir: str,
    layer: int,
    ids: Sequence[int] | None = None,
    name: str | None = None,
    *,
    tokenizer: Any = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeaturesExport:
    """Writes `ID.json` for each feature: its facts as `Run.features` has them, and `examples`.

    An example is one of the 20 strongest rows, and up to 12 rows of its sample before and after: its `score`, origin
    and kept fields, `tokens`, or `token_ids` without a tokenizer, and the `values` of the feature there, 0 where it is
    not stored. ids: None for all features. tokenizer: as `Run.rows` takes it. progress: called with rows that are read
    and all of them, once for each 256 features. The rest is as in `to_delphi`.

    >>> to_feature_json(run, "features", 12, ids=[3, 5]).features  # doctest: +SKIP
    2
    """
    name = run.features_name(layer, name)
    ids = list(range(run.outputs[name]["d_sae"]) if ids is None else ids)
    settings = settings_of(run, "features", name=name, layer=layer, ids=ids)
    unfinished = Unfinished(out_dir, settings, 0)
    total = run.num_rows * -(-len(ids) // _FEATURES_AT_ONCE)
    for begin in range(unfinished.done.get("features", 0), len(ids), _FEATURES_AT_ONCE):
        read = begin // _FEATURES_AT_ONCE * run.num_rows
        options = {"name": name, "n": _EXAMPLES, "progress": lambda done, _, read=read: progress(read + done, total)}
        features = run.features(layer, ids[begin : begin + _FEATURES_AT_ONCE], **options).values()
        tops = np.concatenate([feature.top.rows for feature in features])
        near = np.unique(np.clip(tops[:, None] + np.arange(-_AROUND, _AROUND + 1), 0, run.num_rows - 1))
        found, values = run.layer(layer, f"{name}_ids")[near], run.layer(layer, name, dtype="float32")[near]
        rows = run.rows(near, context=0, tokenizer=tokenizer)
        samples = [(row.stream, row.sample) for row in rows]
        for feature in features:
            examples = []
            for top, score in zip(feature.top.rows.tolist(), feature.top.scores.tolist(), strict=True):
                first, at, after = np.searchsorted(near, (top - _AROUND, top, top + _AROUND + 1)).tolist()
                origin = {key: getattr(rows[at], key) for key in ("stream", "sample", "position", "kept")}
                here = [i for i in range(first, after) if samples[i] == samples[at]]
                tokens = [rows[i].token if tokenizer else rows[i].token_id for i in here]
                strengths = np.where(found[here] == feature.id, values[here], 0).max(1).tolist()
                examples.append(
                    origin | {"score": score, "tokens" if tokenizer else "token_ids": tokens, "values": strengths}
                )
            facts = vars(feature) | {"histogram": feature.histogram.tolist(), "examples": examples}
            del facts["top"]
            with open(unfinished.path(f"{feature.id}.json"), "w", encoding="ascii") as file:
                json.dump(facts, file)
        unfinished.keep(features=min(begin + _FEATURES_AT_ONCE, len(ids)))
    export = FeaturesExport(run.url, name, layer, len(ids), run.num_rows)
    unfinished.finish(asdict(export))
    return export
