"""The reductions of a shard: what must hold of its features and of its sums."""

import json
from collections.abc import Iterator

import numpy as np

from gleaner_reader.format.convert import Rows
from gleaner_reader.format.errors import ShardError
from gleaner_reader.run.tensor_shard import SafetensorsShard

from ..architecture.reductions import Reduction
from ..architecture.sites import MOMENTS, Capture
from ..shards.row_statistics import active_stats

_TOLERANCE = 1e-6
_LEAST = 1e-30  # smaller sums are lost in the rounding of bf16 and fp16
_SUMS_TOLERANCE = 1e-4  # of sums in fp32
_ROWS_TOLERANCE = 1e-2  # of rows as rounded to the stored type


def wrong_outputs(shard: SafetensorsShard, capture: Capture) -> list[str]:
    """A phrase, if the header describes other reductions than the run has."""
    try:
        stated = json.loads(shard.metadata.get("outputs", "{}"))
        wrong = [name for name, facts in capture.facts.items() if not facts.items() <= stated[name].items()]
        wrong += stated.keys() - capture.facts.keys()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        wrong = [*capture.facts, "reductions"]
    return [f"describes {wrong[0]} otherwise than the spec and its files"] if wrong else []


def wrong_reductions(shard: SafetensorsShard, capture: Capture, row_offsets: np.ndarray) -> Iterator[str]:
    """A phrase for each layer of features and of moments that is wrong."""
    for of in capture.reductions:
        for layer in of.layers if of.encoder else ():
            if problem := _wrong_features(shard, of, layer):
                yield f"has {problem} of {of.name}.{layer}"
    for site, layers in capture.moments:
        for layer in layers:
            rows = shard.rows(site, layer, 0, shard.num_rows) if (site, layer) in shard.names else None
            if problem := _wrong_moments(shard, f"{site}.{layer}", row_offsets, rows):
                yield f"has moments of {site}.{layer} {problem}"


def _wrong_features(shard: SafetensorsShard, reduction: Reduction, layer: int) -> str | None:
    name, rows = reduction.name, shard.num_rows
    try:
        ids = shard.rows(f"{name}_ids", layer, 0, rows, verify=True).stored
        active = shard.rows(f"{name}_active", layer, 0, rows, verify=True).stored[:, 0]
    except ShardError as error:
        return f"damaged ids or numbers ({str(error).removeprefix(f'{shard.url} ')})"
    values = shard.rows(name, layer, 0, rows).to_float32()
    assert reduction.encoder
    is_used, is_empty, ordered, most = ids >= 0, ids < 0, np.sort(ids, axis=1), reduction.encoder.d_sae - 1
    checks: dict[str, np.ndarray | bool] = {
        f"ids outside of 0 to {most}": (ids < -1) | (ids > most),
        "rows with an id twice": (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0),
        "padding before a feature, or with a value": np.hstack(
            [is_used[:, 1:] & is_empty[:, :-1], is_empty & (values != 0)]
        ),
        "values that do not descend to zero": np.hstack([values[:, 1:] > values[:, :-1], values < 0]),
        "numbers of active features that contradict the ids": is_used.sum(axis=1) != np.minimum(active, reduction.k),
    }
    stats = shard.stats.get(f"{name}.{layer}", {})
    for key, value in active_stats(active, reduction.k).items():
        stated = stats.get(key)
        is_right = isinstance(stated, int | float) and abs(stated - value) <= _TOLERANCE * value
        checks[f"wrong statistics ({key} {stated!r:.50}, not {value:.7g})"] = not is_right
    return next((problem for problem, marks in checks.items() if np.any(marks)), None)


def _wrong_moments(shard: SafetensorsShard, name: str, row_offsets: np.ndarray, rows: Rows | None) -> str | None:
    """rows: those that the shard stores too."""
    try:
        total, squares = (shard.tensor(f"{name}.{kind}", verify=True).astype(np.float64) for kind in MOMENTS)
    except ShardError as error:
        return f"that are damaged ({str(error).removeprefix(f'{shard.url} ')})"
    if not (np.isfinite(total).all() and np.isfinite(squares).all()):
        return "that are not finite"
    counts = np.diff(row_offsets)[:, None]
    # Squares below the least normal number of fp32 are 0.
    if (counts * squares * (1 + _SUMS_TOLERANCE) + counts**2 * np.finfo(np.float32).tiny < total**2).any():
        return "whose squares are too small for their sums"
    if rows is None or not len(total):
        return None
    values = rows.to_float32().astype(np.float64)
    sizes, rounded = np.abs(values), np.zeros(1) if rows.scale is None else rows.scale[:, None] / 2.0
    for found, terms, errors in (
        (total, values, _ROWS_TOLERANCE * sizes + rounded),
        (squares, values**2, _ROWS_TOLERANCE * sizes**2 + (2 * sizes + rounded) * rounded),
    ):
        wanted, error = (np.add.reduceat(each, row_offsets[:-1], axis=0) for each in (terms, errors))
        if (np.abs(found - wanted) > error + _LEAST).any():
            return "that are not those of its rows"
    return None
