"""Protocols of the shards that Layer and Batches read: the rows and the index of each shard.

Shard and Shards implement the protocols, which let them import Layer and Batches without an import cycle.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..format.convert import Rows
from ..format.index import Index


class ShardSource(Protocol):
    """One shard: its metadata, and rows of any of its layers."""

    url: str

    @property
    def size_bytes(self) -> int: ...

    @property
    def metadata(self) -> dict[str, str]:
        """The text values of the header, such as the identity of the shard and its statistics."""
        ...

    @property
    def names(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(site, layer) -> (rows, width)."""
        ...

    @property
    def sites(self) -> tuple[str, ...]: ...

    @property
    def layers(self) -> tuple[int, ...]: ...

    @property
    def dtypes(self) -> dict[str, str]:
        """The type of each site: bf16, fp16, fp32, int8 or int32."""
        ...

    @property
    def dtype(self) -> str: ...

    @property
    def widths(self) -> dict[str, int]: ...

    @property
    def d_model(self) -> int: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def num_samples(self) -> int:
        """The stored samples, without the rejected ones."""
        ...

    @property
    def num_tokens(self) -> int:
        """The tokens of all stored samples, also those without a row."""
        ...

    def block_rows(self, site: str) -> int:
        """Rows of one compressed block: to read one row costs as much as to read the whole block."""
        ...

    def site(self, site: str | None) -> str: ...

    def index(self) -> Index: ...

    def release(self) -> None: ...

    def release_rows(self) -> None: ...

    def rows(self, site: str, layer: int, begin: int, end: int, verify: bool = False) -> Rows:
        """Rows begin..end of one layer, as stored."""
        ...

    def read_rows(self, site: str, layer: int, begin: int, end: int, into: Rows) -> None: ...


class RowSource(Protocol):
    """Shards with one numbering of rows: shard s holds rows row_offsets[s]..row_offsets[s + 1]."""

    url: str

    @property
    def shards(self) -> Sequence[ShardSource]: ...

    @property
    def row_offsets(self) -> np.ndarray:
        """int64 [shards + 1]."""
        ...

    @property
    def num_rows(self) -> int: ...

    @property
    def widths(self) -> dict[str, int]: ...

    @property
    def dtypes(self) -> dict[str, str]: ...

    def shard_index(self, number: int) -> Index:
        """The index of shard `number`."""
        ...
