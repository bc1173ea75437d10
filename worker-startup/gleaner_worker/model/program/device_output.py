"""The output of a step: on its way to the host, then rows with the vectors of each sample and their statistics."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import jax
import numpy as np

from gleaner_reader.format.convert import Rows

from ...architecture.sites import COMPUTED, MOMENTS, STATS, Capture
from ...failures import Failure, OutOfMemory
from .program import is_out_of_memory

_MAX_ABS = STATS.index("max_abs")
_RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32}
# Samples with so many vectors on average are copied one by one. One copy of all vectors by index saves calls for fewer
# vectors, but it writes each value twice.
_SLICED = 8


@dataclass
class OutputPart:
    """One device's part of an output of all rows: some layers, some rows, some of D."""

    layer: int  # the first, as an index of the site's layers
    row: int  # the first of the step
    column: int  # the first of D
    data: jax.Array | np.ndarray  # [L, R, W, ...]; in a HostRow [L, W, ...]

    def copy(self, target: np.ndarray, source: slice | np.ndarray, places: slice | np.ndarray) -> None:
        """Copies the vectors `source` of a row into these places of all layers and columns, [L, rows, ...]."""
        values = self.data[:, source]
        layers = slice(self.layer, self.layer + len(values))
        if values.ndim == 3:
            target[layers, places, self.column : self.column + values.shape[2]] = values
        else:
            target[layers, places] = values


class InFlightStep:
    """The results of the devices. Their arrays are copied to the host as soon as they are ready."""

    def __init__(self, output: dict[str, dict[str, list]], counts: list[np.ndarray], capture: Capture, name: str):
        self._capture, self._counts, self._name = capture, counts, name
        self._lock = threading.Lock()
        self._is_on_host = False
        self._parts: dict[str, dict[str, list[OutputPart]]] = {
            kind: {site: _parts(pieces, len(counts)) for site, pieces in of_sites.items()}
            for kind, of_sites in output.items()
        }
        for part in self._all():
            part.data.copy_to_host_async()  # type: ignore[union-attr]

    def wait(self) -> None:
        """Waits until every array is on the host, and frees the devices' memory. Raises Failure."""
        with self._lock:
            if self._is_on_host:
                return
            try:
                for part in self._all():
                    part.data = np.asarray(part.data)
            except jax.errors.JaxRuntimeError as error:
                raise device_failure(self._name, error) from error
            self._is_on_host = True

    def collect(self) -> list["HostRow"]:
        """The rows on the host, once; raises Failure("infrastructure") when the devices failed to compute them."""
        self.wait()
        parts, self._parts = self._parts, {}
        return [HostRow(parts, r, counts, self._capture) for r, counts in enumerate(self._counts)]

    def _all(self) -> list[OutputPart]:
        return [part for sites in self._parts.values() for parts in sites.values() for part in parts]


class HostRow:
    """One row on the host. counts: int32 [samples], the stored vectors of each sample, in the order of the row.

    Methods take the indices of samples in the row. Raises AssertionError when this process holds a part of the row
    alone, as in a mesh over several processes: the rest of a shard's memory has the values of an earlier shard.
    """

    def __init__(self, parts: dict[str, dict[str, list[OutputPart]]], row: int, counts: np.ndarray, capture: Capture):
        self.counts = counts
        self._capture = capture
        self._ends = np.cumsum(counts)  # of the vectors of each sample
        held = {kind: {site: _of_row(each, row) for site, each in sites.items()} for kind, sites in parts.items()}
        of_moments = dict(capture.moments)
        for kind, sites in held.items():
            for site, each in sites.items():
                # `_fold` counts the vectors that are not finite, so the device has no such column.
                stats = len(capture.stats_columns(site)) - 1
                width = {"scale": 1, "stats": stats}.get(kind, capture.width(site))
                layers = of_moments[site] if kind in MOMENTS else capture.layers_of(site)
                _check_whole(each, len(layers) * width, f"{kind} of {site}")
        self._values, self._scale = _as_integers(held.get("rows", {})), _as_integers(held.get("scale", {}))
        self._moments = {f"{site}.{kind}": held[kind][site] for site in of_moments for kind in MOMENTS}
        # fp32 [L, stored vectors, K] of all layers.
        self._stats = {
            site: np.concatenate([part.data[:, : self._ends[-1]] for part in of_site])
            for site, of_site in held.get("stats", {}).items()
        } | {name: self._stats_of_values(name) for name in capture.with_stats if name not in capture.with_device_stats}

    def _stats_of_values(self, name: str) -> np.ndarray:
        """fp32 [L, stored vectors, 3], of values that descend to 0. Sums in fp64, so that no processor rounds another
        way."""
        parts, count = self._values[name], slice(0, int(self._ends[-1]))
        shape = len(self._capture.layers_of(name)), count.stop, self._capture.width(name)
        raw = np.empty(shape, parts[0].data.dtype)
        for part in parts:
            part.copy(raw, count, count)
        values = raw.view(np.float32) if raw.itemsize == 4 else Rows(raw, None).to_float32()
        norms = np.sqrt(np.einsum("lwk,lwk->lw", values, values, dtype=np.float64))
        return np.stack([values.sum(axis=2, dtype=np.float64), norms, values[:, :, 0]], axis=2).astype(np.float32)

    def store(self, samples: Sequence[int], rows: dict, scale: dict, row_stats: dict, begins: np.ndarray) -> None:
        """Copies the vectors of each sample to its begin in the targets, and after it.

        rows, scale: {site: [L, rows, D]} and, for int8, {site: fp32 [L, rows]}, as Model.empty makes them. row_stats:
        {site: fp32 [L, rows, 2]}, the L2 norm and the largest magnitude of each vector.
        """
        counts = self.counts[samples]
        firsts = self._ends[samples] - counts
        sources, targets = _spans(firsts, counts), _spans(begins, counts)
        for site, array in row_stats.items():
            array[:, targets] = self._stats[site][:, sources, 1:3]
        places: list[tuple] = [(sources, targets)]
        if len(sources) >= _SLICED * len(samples):
            spans = zip(firsts.tolist(), begins.tolist(), counts.tolist(), strict=True)
            places = [(slice(first, first + count), slice(begin, begin + count)) for first, begin, count in spans]
        for arrays, computed in ((rows, self._values), (scale, self._scale)):
            for site, array in arrays.items():
                raw = array.view(_RAW[array.itemsize])
                for part in computed[site]:
                    for source, target in places:
                        part.copy(raw, source, target)

    def store_moments(self, samples: Sequence[int], moments: dict[str, np.ndarray], positions: np.ndarray) -> None:
        """Copies the sums of each sample to its position in the targets, {"SITE.sum", "SITE.squares": fp32
        [L, samples, D]}."""
        for name, array in moments.items():
            for part in self._moments[name]:
                part.copy(array, np.asarray(samples), positions)

    def sums(self, samples: Sequence[int]) -> dict[str, np.ndarray]:
        """Statistics of each sample by site, fp64 [L, samples, K]: columns as Capture.stats_columns, over its
        vectors."""
        return {site: sums[:, samples] for site, sums in self._sums.items()}

    def non_finite(self) -> tuple[str, int, int, int] | None:
        """The origin of the first value that is not finite: site, layer, first sample with such a value there, and the
        number of such vectors in the row, or of such samples of moments. None when all values are finite."""
        counts: dict[tuple[str, int], np.ndarray] = {}  # of the broken vectors of each sample
        for site, layers in self._capture.moments:  # a vector that is not finite makes all squares NaN
            broken = np.zeros((len(layers), len(self.counts)), bool)
            for part in self._moments[f"{site}.squares"]:
                values = part.data[:, : len(self.counts)]
                broken[part.layer : part.layer + len(values)] |= ~np.isfinite(values).all(axis=2)
            counts |= {(site, layer): marks for layer, marks in zip(layers, broken, strict=True)}
        for name, sums in self._sums.items():
            of_layers = zip(self._capture.layers_of(name), sums[:, :, STATS.index("non_finite")], strict=True)
            counts |= {(name, layer): found for layer, found in of_layers}
        order = (*COMPUTED, *self._capture.with_stats)
        found = [key for key, broken in counts.items() if broken.any()]
        if not found:
            return None
        name, layer = min(found, key=lambda key: (key[1], order.index(key[0])))
        return name, layer, int(np.flatnonzero(counts[name, layer])[0]), int(counts[name, layer].sum())

    @cached_property
    def _sums(self) -> dict[str, np.ndarray]:
        """fp64 [L, samples, K] by site."""
        begins = self._ends - self.counts
        return {site: _fold(stats.astype(np.float64), begins) for site, stats in self._stats.items()}


def _spans(begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers begin to begin + count - 1 of each pair, in order."""
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(begins - before, counts)


def _fold(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """[L, samples, K], from the statistics [L, vectors, K - 1] of samples that begin at `begins`, one vector at least
    each. Adds in the order of the vectors."""
    sums, largest = np.add.reduceat(values, begins, axis=1), values[:, :, _MAX_ABS]
    broken = np.add.reduceat(~np.isfinite(largest), begins, axis=1, dtype=np.float64)
    folded = [sums[:, :, :2], np.maximum.reduceat(largest, begins, axis=1)[:, :, None], broken[:, :, None]]
    return np.concatenate([*folded, sums[:, :, 3:]], axis=2)


def _of_row(parts: list[OutputPart], row: int) -> list[OutputPart]:
    """The parts of one row, [L, W, ...]."""
    return [
        OutputPart(part.layer, 0, part.column, np.asarray(part.data)[:, row - part.row])
        for part in parts
        if part.row <= row < part.row + part.data.shape[1]
    ]


def _as_integers(sites: dict[str, list[OutputPart]]) -> dict[str, list[OutputPart]]:
    """The same parts as unsigned integers: numpy copies the floats of ml_dtypes one by one."""
    for parts in sites.values():
        for part in parts:
            part.data = part.data.view(_RAW[part.data.dtype.itemsize])
    return sites


def _check_whole(parts: list[OutputPart], size: int, name: str) -> None:
    """Raises AssertionError unless disjoint parts of a row hold `size` numbers for each vector."""
    found = sum(len(part.data) * prod(part.data.shape[2:]) for part in parts)
    if found != size:
        raise AssertionError(f"this process holds {found} of the {size} numbers for each vector in the {name}")


def _parts(runs: Sequence[jax.Array], rows: int) -> list[OutputPart]:
    """Every device's part of the arrays of consecutive layers, ordered by layer. Parts without a used row are left
    out, and never copied."""
    parts, layer = [], 0
    for array in runs:
        for shard in array.addressable_shards:
            begin = [index.start or 0 for index in shard.index] + [0]
            if shard.replica_id == 0 and begin[1] < rows:
                parts.append(OutputPart(layer, begin[1], begin[3], shard.data))
        layer += array.shape[0]
    return parts


def device_failure(name: str, error: Exception) -> Failure:
    """The failure for an error of the devices while they compute `name`: OutOfMemory, or Failure("infrastructure")."""
    reason = f"Failed to compute {name}: {str(error)[:1000]}"
    if not is_out_of_memory(error):
        return Failure("infrastructure", reason)
    advice = "lower max_seq_length, or store fewer layers or sites, if it happens again"
    return OutOfMemory("infrastructure", f"{reason}; {advice}")
