"""One shard: its metadata, its index, and rows of any layer, each read by a separate range."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..format.convert import Rows, check_kind, finish
from ..format.errors import ShardError
from ..format.files import PARALLEL
from ..format.forks import ProcessLock, cached_property
from ..format.index import Index, check_order
from ..format.limits import is_number
from ..format.seekable import File
from ..shuffle.batches import Batches
from ..shuffle.source import ShardSource
from .shards import Shards


class Shard(ShardSource):
    """One file of a run, in any format. Properties read its header; methods read the requested parts of its body.

    Raises ShardError for a damaged file.

    >>> shard = run.shards[0]
    >>> shard.layers, shard.first_sample
    ((4, 12), 0)
    """

    format: str
    stream = 0  # of the run that it belongs to
    moments: dict[tuple[str, int], int] = {}  # (site, layer) -> width, where the sums of each sample are stored

    def __init__(self, file: File):
        self.url = file.url
        self._file = file
        self._lock = ProcessLock()
        self._index: Index | None = None

    def __repr__(self) -> str:
        """Reads nothing, so it shows no value of the header."""
        return f"<Shard {self.url}, {self.size_bytes:,} bytes, {self.format}>"

    def __getstate__(self) -> dict:
        """Leaves out of a pickle the parts of the body that are read again."""
        return {**self.__dict__, "_index": None}

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.url.replace("\\", "/").rpartition("/")[2]

    @property
    def layout(self) -> dict:
        """Where the header says that tensors are, for an entry of metadata.json; empty for a pkl.gz."""
        return {}

    def accept(self, entry: dict) -> bool:
        """Takes an entry of metadata.json in place of the header. Returns whether it has all that rows need."""
        return False

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self._file.size

    @property
    def sites(self) -> tuple[str, ...]:
        """The stored sites, such as resid_post, in the order of the file."""
        return tuple(dict.fromkeys(site for site, _ in self.names))

    @property
    def layers(self) -> tuple[int, ...]:
        """The stored layers, ascending."""
        return tuple(sorted({layer for _, layer in self.names}))

    @property
    def dtype(self) -> str:
        """The type of the first site."""
        return self.dtypes[self.site((*self.sites, None)[0])]

    @property
    def widths(self) -> dict[str, int]:
        """The values of one row of each site."""
        return {site: width for (site, _), (_, width) in self.names.items()}

    @property
    def d_model(self) -> int:
        """The values of one row of the first site."""
        return self.widths[self.site((*self.sites, None)[0])]

    @property
    def num_rows(self) -> int:
        """The stored rows of each layer and site."""
        return next(iter(self.names.values()))[0]

    @property
    def first_sample(self) -> int:
        """The number of the first sample in the stream, stored or rejected."""
        return self._number("first_sample")

    @property
    def last_sample(self) -> int:
        """The number of the last sample in the stream, stored or rejected."""
        return self._number("last_sample")

    @property
    def is_final(self) -> bool:
        """Whether the stream ends with this shard."""
        return self.metadata.get("final") == "true"

    @cached_property
    def stats(self) -> dict[str, dict[str, float]]:
        """Statistics of each `{site}.{layer}`: mean, norm (the mean L2 norm of a row), max_abs, non_finite."""
        return self.stated("stats")

    def block_rows(self, site: str) -> int:
        """Rows of one compressed block: to read one row costs as much as to read the whole block."""
        return 1

    def index(self) -> Index:
        """The index of the samples. Keeps it until release()."""
        index = self._index
        if index is None:
            with self._lock:
                index = self._index = self._index or check_order(self._load_index(), self.url)
        return index

    def release(self) -> None:
        """Frees the parts of the body in memory; a later request reads them again."""
        self._index = None

    def release_rows(self) -> None:
        """Frees the rows in memory and keeps the index."""

    def read(
        self,
        layer: int,
        site: str | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        as_: str = "numpy",
        dtype: str | None = None,
        verify: bool = False,
    ):
        """Rows of one layer, as an array [end - begin, width].

        Args:
            layer: the number of the layer, from 0.
            site: such as "resid_post"; needed if the shard has several.
            begin: the first row.
            end: the row after the last one; None for all.
            as_, dtype, verify: as `Run.layer` takes them.

        Raises:
            ValueError: the shard has no such layer or site, or the kind or the dtype is unknown.
            IndexError: the shard has no such rows.

        >>> run.shards[0].read(12, begin=10, end=20).shape
        (10, 8)
        """
        check_kind(as_, dtype)
        rows = self.rows(self.site(site), layer, begin, self.num_rows if end is None else end, verify)
        return finish(rows, as_, dtype)

    def batches(self, layer: int | Sequence[int], site: str | None = None, **options) -> Batches:
        """Shuffled rows of one layer, for training: arrays [batch_rows, width]. See Batches for the options."""
        return Shards(self.url, (self,)).batches(layer, site, **options)

    def tensor(self, name: str, begin: int = 0, end: int | None = None, verify: bool = False) -> np.ndarray:
        """Rows begin..end of any tensor, as stored. Raises ShardError for a missing tensor."""
        raise ShardError(f"{self.url} has no {name}, as a {self.format} has no tensors")

    def read_rows(self, site: str, layer: int, begin: int, end: int, into: Rows) -> None:
        """Reads rows begin..end of one layer into rows of the same shape and type."""
        into.put(slice(None), self.rows(site, layer, begin, end))

    def rows_of_each(self, names: Sequence[tuple[str, int]], begin: int, end: int) -> list[Rows]:
        """The same rows of several (site, layer)."""
        with ThreadPoolExecutor(PARALLEL, "rows") as pool:
            return list(pool.map(lambda name: self.rows(name[0], name[1], begin, end), names))

    def site(self, site: str | None) -> str:
        """The site of a request; None selects the only site. Raises ValueError that names the shard's sites."""
        if site is None and len(self.sites) == 1:
            return self.sites[0]
        if not self.sites:
            raise ValueError(f"{self.url} stores moments and no rows of a site; run.moments(layer) reads them")
        if site not in self.sites:
            raise ValueError(f"site is {site!r}; {self.url} has {', '.join(self.sites)}: pass one of them as site")
        return site

    def _load_index(self) -> Index:
        raise NotImplementedError

    def _check(self, site: str, layer: int, begin: int, end: int) -> None:
        if (site, layer) not in self.names:
            raise ValueError(
                f"there is no {site}.{layer} in {self.url}; it has layers {list(self.layers)} of {self.sites}"
            )
        rows = self.names[site, layer][0]
        if not 0 <= begin <= end <= rows:
            raise IndexError(f"there are no rows {begin} to {end} in {self.url}; it has {rows}")

    def _number(self, key: str) -> int:
        text = self.metadata.get(key, "")
        if not is_number(text, 18):
            raise ShardError(f"{self.url} cannot be read: its header says {key} {text!r:.50}, not a number")
        return int(text)

    def stated(self, key: str) -> dict:
        """An object of JSON in the header, empty where it is absent."""
        try:
            value = json.loads(self.metadata.get(key, "{}"))
        except (ValueError, RecursionError) as error:
            raise ShardError(f"{self.url} cannot be read: the {key} in its header are damaged: {error}") from error
        if not isinstance(value, dict):
            raise ShardError(f"{self.url} cannot be read: the {key} in its header are damaged")
        return value
