"""A sequence of shards as one: its metadata, one layer of all shards, shuffled rows of all shards."""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np

from ..format.errors import ShardError
from ..format.files import PARALLEL
from ..format.forks import cached_property
from ..format.index import Index
from ..shuffle.batches import Batches
from ..shuffle.source import ShardSource
from .layer import Layer

S = TypeVar("S", bound=ShardSource)
_INDEXES_KEPT = 16


class Shards(Generic[S]):
    """Several shards as one. Reads headers when they are needed, and only the requested parts of bodies.

    >>> part = gleaner_reader.Shards(run.url, run.streams[7])
    >>> part.num_rows < run.num_rows
    True
    """

    def __init__(self, url: str, shards: Sequence[S]):
        self.url = url
        self.shards = tuple(shards)
        self._kept: OrderedDict[int, S] = OrderedDict()

    @property
    def first(self) -> S:
        """The first shard. Raises ValueError for a run that has no shard yet."""
        if not self.shards:
            raise ValueError(f"there is no shard in {self.url} yet; run = run.wait() waits until the run is complete")
        return self.shards[0]

    @property
    def sites(self) -> tuple[str, ...]:
        """The stored sites, such as resid_post, equal in all shards."""
        return self.first.sites

    @property
    def layers(self) -> tuple[int, ...]:
        """The stored layers, ascending, equal in all shards."""
        return self.first.layers

    @property
    def widths(self) -> dict[str, int]:
        """The values of one row of each site."""
        return self.first.widths

    @property
    def d_model(self) -> int:
        """The values of one row of the first site."""
        return self.first.d_model

    @property
    def dtypes(self) -> dict[str, str]:
        """The stored type of each site: bf16, fp16, fp32, int8 or int32."""
        return self.first.dtypes

    @property
    def dtype(self) -> str:
        """The stored type of the first site."""
        return self.first.dtype

    @property
    def num_samples(self) -> int:
        """The stored samples of all shards. Reads every header."""
        return sum(shard.num_samples for shard in self._opened)

    @property
    def num_tokens(self) -> int:
        """The tokens of all stored samples, also those without a row. Reads every header."""
        return sum(shard.num_tokens for shard in self._opened)

    @property
    def num_rows(self) -> int:
        """The stored rows of each layer and site. Reads every header."""
        return int(self.row_offsets[-1])

    @cached_property
    def row_offsets(self) -> np.ndarray:
        """int64 [shards + 1]: shard s holds rows row_offsets[s]..[s + 1] of the run."""
        return np.cumsum([0, *(shard.num_rows for shard in self._opened)], dtype=np.int64)

    def layer(
        self, layer: int, site: str | None = None, *, as_: str = "numpy", dtype: str | None = None, verify: bool = False
    ) -> Layer:
        """One layer of the whole run: iterate over it for the array of each shard, index it for rows.

        Args:
            layer: the number of the layer, from 0.
            site: such as "resid_post"; needed if the run has several.
            as_: the kind of array: "numpy", "torch" or "jax".
            dtype: "float32", "float16" or "bfloat16"; None for the stored type, with int8 as float32.
            verify: whether to compare the layer of each shard with its checksum first, which reads all of it.

        Raises:
            ValueError: the run has no such layer or site, or the kind or the dtype is unknown.
            MissingPackage: torch or jax is not installed.
            ShardError: a shard is damaged; raised while rows are read.

        >>> rows = run.layer(12, dtype="float32")[[5, 100]]
        >>> rows.shape
        (2, 8)
        """
        self._check(layer, site)
        return Layer(self, layer, self.first.site(site), as_, dtype, verify)

    def batches(self, layer: int | Sequence[int], site: str | None = None, **options) -> Batches:
        """Shuffled rows for training: arrays [batch_rows, width] of one layer, [batch_rows, layers, width] of several.

        Args:
            layer: the number of a layer, or several numbers.
            site: such as "resid_post"; needed if the run has several.
            **options: as Batches describes them.

        Raises:
            ValueError: the run has no such layer or site, no layer is named, or two options contradict each other.

        >>> next(iter(run.batches([4, 12], batch_rows=32, seed=0))).shape
        (32, 2, 8)
        """
        layers = [layer] if isinstance(layer, int) else list(layer)
        if not layers:
            raise ValueError("layer is an empty list; name at least one")
        for each in layers:
            self._check(each, site)
        return Batches(self, layer, self.first.site(site), **options)

    def index(self, shard: S) -> Index:
        """The index of one of the shards. Memory keeps the last 16 indexes.

        Raises:
            ShardError: the index is damaged.

        >>> index = run.index(run.streams[7][0])
        >>> index.row_tokens.shape == (index.row_offsets[-1],)
        True
        """
        index = shard.index()
        self._kept[id(shard)] = shard
        self._kept.move_to_end(id(shard))
        if len(self._kept) > _INDEXES_KEPT:
            self._kept.popitem(last=False)[1].release()
        return index

    def shard_index(self, number: int) -> Index:
        """The index of shard `number`, counted from 0 in the order of `shards`."""
        return self.index(self.shards[number])

    @cached_property
    def _opened(self) -> tuple[S, ...]:
        """The shards, with every header read and compared with the first header."""
        self._read_headers(self.shards)
        first = self.first
        for shard in self.shards:
            if (set(shard.names), shard.widths, shard.dtypes) != (set(first.names), first.widths, first.dtypes):
                raise ShardError(
                    f"{shard.url} holds layers {list(shard.layers)} of {shard.dtypes}, "
                    f"{first.url} {list(first.layers)} of {first.dtypes}: they are not of one run"
                )
        return self.shards

    def _read_headers(self, shards: Sequence[S]) -> None:
        with ThreadPoolExecutor(PARALLEL, "header") as pool:
            list(pool.map(lambda shard: (shard.metadata, shard.names), shards))

    def _check(self, layer: int, site: str | None) -> None:
        first = self.first
        if (first.site(site), layer) not in first.names:
            layers = [number for name, number in first.names if name == first.site(site)]
            raise ValueError(f"layer is {layer!r}; {self.url} has layers {', '.join(map(str, sorted(layers)))}")
