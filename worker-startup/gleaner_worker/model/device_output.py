"""A batch on its way to the host, and on the host: the rows of each sample, and statistics of them."""

import threading
from collections.abc import Sequence

import jax
import numpy as np

from ..failures import Failure
from .capture import STORED, Capture
from .program import is_out_of_memory

_MAX_ABS, _NON_FINITE = 2, 3  # columns of capture.STATS
# The order in which a block computes its sites: the first site that is not finite is the origin.
_COMPUTED = ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")
_RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class InFlightBatch:
    """The results of the devices, one batch for each. Their arrays are copied to the host as soon as they are ready."""

    def __init__(self, output: dict, counts: list[np.ndarray], what: Capture, name: str):
        self._what = what
        self._counts = counts
        self._name = name
        self._lock = threading.Lock()
        self._on_host: dict | None = None
        # One array per device, in the order of their batches. The arrays of idle devices are never copied.
        self._parts = {
            part: {site: _pieces(array)[: len(counts)] for site, array in sites.items()}
            for part, sites in output.items()
        }
        for piece in jax.tree.leaves(self._parts):
            piece.copy_to_host_async()

    def land(self) -> None:
        """Waits until every array is on the host, and frees the devices' memory. Raises Failure."""
        with self._lock:
            if self._on_host is None:
                try:
                    self._on_host = jax.tree.map(np.asarray, self._parts)
                except jax.errors.JaxRuntimeError as error:
                    raise device_failure(self._name, error) from error
                self._parts = {}

    def collect(self) -> list["HostBatch"]:
        """The batches on the host, once; raises Failure("infrastructure") when the devices failed to compute them."""
        self.land()
        parts, self._on_host = self._on_host or {}, {}
        return [
            HostBatch({part: _of_device(sites, i) for part, sites in parts.items()}, counts, self._what)
            for i, counts in enumerate(self._counts)
        ]


class HostBatch:
    """counts: int32 [samples], the stored rows of each sample, in the order of the batch's rows."""

    def __init__(self, parts: dict[str, dict[str, np.ndarray]], counts: np.ndarray, what: Capture):
        self.counts = counts
        self._stats = parts["stats"]  # [L, B, K]
        self.stats = {site: self._fold(stats) for site, stats in self._stats.items()}  # fp64 [L, K]
        # bf16 rows are their bits
        self._rows = {site: rows.view(STORED[what.dtype]) for site, rows in parts["rows"].items()}
        self._scale = parts.get("scale", {})
        self._layers = what.layers

    def rows(self, site: str, b: int) -> np.ndarray:
        """The rows of sample b: a view [L, counts[b], D] in the stored dtype."""
        return self._rows[site][:, b, : self.counts[b]]

    def scale(self, site: str, b: int) -> np.ndarray:
        """The scales of sample b, of int8 only: a view fp32 [L, counts[b]]."""
        return self._scale[site][:, b, : self.counts[b]]

    def store(self, rows: dict, scale: dict, begins: Sequence[int]) -> None:
        """Copies each sample b to begins[b] and the rows after it, in `rows` {site: [L, rows, D]} and, for int8, in
        `scale` {site: fp32 [L, rows]}, as Model.empty makes them."""
        for targets, computed in ((rows, self._rows), (scale, self._scale)):
            for site, target in targets.items():
                # As integers: numpy copies the floats of ml_dtypes one by one.
                raw = _RAW[target.itemsize]
                for begin, count, row in zip(
                    begins, self.counts, computed[site].view(raw).swapaxes(0, 1), strict=False
                ):
                    target.view(raw)[:, begin : begin + count] = row[:, :count]

    def non_finite(self) -> tuple[str, int, int, int] | None:
        """The origin of the first value that is not finite: site, layer, first sample b with such a value there, and
        the number of such rows in the batch. None when all values are finite."""
        for index, layer in enumerate(self._layers):
            for site in _COMPUTED:
                if site in self._stats and (broken := self._stats[site][index, :, _NON_FINITE]).any():
                    return site, layer, int(np.flatnonzero(broken)[0]), int(broken.sum())
        return None

    def _fold(self, stats: np.ndarray) -> np.ndarray:
        """[L, B, K] -> fp64 [L, K] over the samples: the maximum of magnitudes, the sum of all else."""
        by_sample = stats[:, : len(self.counts)].astype(np.float64)
        folded = by_sample.sum(axis=1)
        folded[:, _MAX_ABS] = by_sample[:, :, _MAX_ABS].max(axis=1)
        return folded


def _of_device(sites: dict[str, list[np.ndarray]], number: int) -> dict[str, np.ndarray]:
    return {site: pieces[number] for site, pieces in sites.items()}


def _pieces(array: jax.Array) -> list[jax.Array]:
    shards = [shard for shard in array.addressable_shards if shard.replica_id == 0]
    return [shard.data for shard in sorted(shards, key=lambda shard: shard.index[1].start or 0)]


def device_failure(name: str, error: Exception) -> Failure:
    hint = (
        "; lower max_seq_length, or store fewer layers or sites, if it happens again" if is_out_of_memory(error) else ""
    )
    return Failure("infrastructure", f"Failed to compute a batch of {name}: {str(error)[:1000]}{hint}")
