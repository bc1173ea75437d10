"""A batch on its way to the host, and there: the rows of each sample, and what is known of them as numbers."""

import threading
from collections.abc import Sequence

import jax
import numpy as np

from ..failures import Failure
from .capture import STORED, Capture
from .program import is_out_of_memory

_MAX_ABS, _NON_FINITE = 2, 3  # columns of capture.STATS
# The order in which a block computes its sites: the first that is not finite is where it began.
_COMPUTED = ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")
_RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Pending:
    """A batch that the devices compute. Its arrays are asked for at once, so that they are copied as they get ready."""

    def __init__(self, output: dict, counts: np.ndarray, what: Capture, name: str):
        self._what = what
        self._counts = counts
        self._name = name
        self._lock = threading.Lock()
        self._on_host: dict | None = None
        # One array per device that has a part of the batch, in the order of its rows.
        self._parts = {
            part: {site: _pieces(array) for site, array in sites.items()} for part, sites in output.items()
        }
        for piece in jax.tree.leaves(self._parts):
            piece.copy_to_host_async()

    def land(self) -> None:
        """Waits until all of it is on the host, and gives the devices their memory back. Raises Failure."""
        with self._lock:
            if self._on_host is None:
                try:
                    self._on_host = jax.tree.map(np.asarray, self._parts)
                except jax.errors.JaxRuntimeError as error:
                    raise device_failure(self._name, error) from error
                self._parts = {}

    def collect(self) -> "HostBatch":
        """The batch on the host, once; raises Failure("infrastructure") when the devices failed to compute it."""
        self.land()
        batch, self._on_host = HostBatch(self._on_host, self._counts, self._what), {}
        return batch


class HostBatch:
    """counts: int32 [samples], the stored rows of each sample, which are in the order of the batch's rows."""

    def __init__(self, parts: dict, counts: np.ndarray, what: Capture):
        self.counts = counts
        self.stats = {site: self._fold(pieces) for site, pieces in parts["stats"].items()}  # fp64 [L, K]
        self._stats = {site: np.concatenate(pieces, axis=1) for site, pieces in parts["stats"].items()}  # [L, B, K]
        stored = STORED[what.dtype]  # bf16 comes as its bits
        self._rows = {site: [piece.view(stored) for piece in pieces] for site, pieces in parts["rows"].items()}
        self._scale = parts.get("scale", {})
        self._layers = what.layers

    def rows(self, site: str, b: int) -> np.ndarray:
        """The rows of sample b: a view [L, counts[b], D] in the stored dtype."""
        return self._of(self._rows[site], b)

    def scale(self, site: str, b: int) -> np.ndarray:
        """The scales of sample b, of int8 only: a view fp32 [L, counts[b]]."""
        return self._of(self._scale[site], b)

    def store(self, rows: dict, scale: dict, begins: Sequence[int]) -> None:
        """Copies each sample b to begins[b] and the rows after it, in `rows` {site: [L, rows, D]} and, for int8, in
        `scale` {site: fp32 [L, rows]}, as Model.empty makes them."""
        for targets, pieces in ((rows, self._rows), (scale, self._scale)):
            for site, target in targets.items():
                # As integers: numpy copies the floats of ml_dtypes one by one.
                target = target.view(_RAW[target.itemsize])
                raw = [piece.view(_RAW[piece.itemsize]) for piece in pieces[site]]
                for b, begin in enumerate(begins):
                    target[:, begin : begin + self.counts[b]] = self._of(raw, b)

    def non_finite(self) -> tuple[str, int, int, int] | None:
        """Where a value that is not finite comes up first: the site, the layer, the first sample b that has one there,
        and how many rows of the batch do. None when all are finite."""
        for index, layer in enumerate(self._layers):
            for site in _COMPUTED:
                if site in self._stats and (broken := self._stats[site][index, :, _NON_FINITE]).any():
                    return site, layer, int(np.flatnonzero(broken)[0]), int(broken.sum())
        return None

    def _of(self, pieces: list[np.ndarray], b: int) -> np.ndarray:
        height = pieces[0].shape[1]
        return pieces[b // height][:, b % height, : self.counts[b]]

    def _fold(self, pieces: list[np.ndarray]) -> np.ndarray:
        """[L, B, K] of each device -> fp64 [L, K] over the samples: magnitudes are compared, all else is added."""
        by_sample = np.concatenate(pieces, axis=1)[:, : len(self.counts)].astype(np.float64)
        folded = by_sample.sum(axis=1)
        folded[:, _MAX_ABS] = by_sample[:, :, _MAX_ABS].max(axis=1)
        return folded


def _pieces(array: jax.Array) -> list[jax.Array]:
    shards = [shard for shard in array.addressable_shards if shard.replica_id == 0]
    return [shard.data for shard in sorted(shards, key=lambda shard: shard.index[1].start or 0)]


def device_failure(name: str, error: Exception) -> Failure:
    hint = (
        "; lower max_seq_length, or store fewer layers or sites, if it happens again" if is_out_of_memory(error) else ""
    )
    return Failure("infrastructure", f"Failed to compute a batch of {name}: {str(error)[:1000]}{hint}")
