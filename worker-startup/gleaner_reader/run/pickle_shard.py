"""A shard as a gzipped pickle: one site, no token ids, and a body that is always read from its beginning."""

import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..format.convert import STORED, Rows
from ..format.errors import ShardError, Unsafe
from ..format.forks import cached_property
from ..format.gzip_header import read_gzip_header
from ..format.index import Index
from ..format.limits import BYTES_PER_BYTE, FREE_BYTES
from ..format.pickle_entries import problem_of
from ..format.safe_pickle import Take, load_shard
from ..format.seekable import File
from .shard import Shard

_ROWS = re.compile(r"(.+)\.([0-9]{1,6})")
_DTYPES = {"float32": "fp32", "float16": "fp16"}
_DEFAULT_SITE = "resid_post"
# A worker's shard has at most 1 << 20. A row has at least two bytes in an array, and needs 20 in an index.
_MAX_ROWS = 1 << 22
_READ_BYTES = 1 << 24


@dataclass(frozen=True)
class _Body:
    """The metadata in the body, without the activations."""

    index: Index
    layers: tuple[int, ...]
    d_model: int | None  # None when there are no samples
    dtype: str | None


class _Sequential(io.RawIOBase):
    """Reads a File from its beginning to its end."""

    def __init__(self, file: File):
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        end = min(self._position + len(buffer), self._file.size)
        data = self._file.read(self._position, end)
        buffer[: len(data)] = data
        self._position = end
        return len(data)


class PickleShard(Shard):
    """Reads its metadata from its header. A file of other software has no metadata there, so its body is read."""

    format = "pkl.gz"

    def __init__(self, file: File):
        super().__init__(file)
        self._layer: tuple[int, np.ndarray] | None = None

    def __getstate__(self) -> dict:
        state = {**super().__getstate__(), "_layer": None}
        state.pop("_body", None)
        return state

    @cached_property
    def metadata(self) -> dict[str, str]:
        return read_gzip_header(self._file.read, self._file.size, self.url)

    @cached_property
    def names(self) -> dict[tuple[str, int], tuple[int, int]]:
        if not {"rows", "d_model", "stats"} <= set(self.metadata):
            shape = (int(self._body.index.row_offsets[-1]), self._body.d_model or 0)
            return {(_DEFAULT_SITE, layer): shape for layer in self._body.layers}
        rows, width = self._number("rows"), self._number("d_model")
        names = [match for name in self.stats if (match := _ROWS.fullmatch(name))]
        if not names or len(names) < len(self.stats):
            raise ShardError(f"{self.url} cannot be read: the stats in its header name no layers")
        if not width or len(names) * rows * width * 2 > self._max_bytes:
            raise ShardError(
                f"{self.url} cannot be read: its header says {rows} rows of {width}, which the file cannot hold"
            )
        return {(name[1], int(name[2])): (rows, width) for name in names}

    @property
    def dtypes(self) -> dict[str, str]:
        return dict.fromkeys(self.sites, self._dtype)

    @property
    def _dtype(self) -> str:
        return _DTYPES.get(self.metadata.get("dtype", "")) or self._body.dtype or "fp32"

    @property
    def num_tokens(self) -> int:
        return self._number("tokens") if "tokens" in self.metadata else self.num_rows

    @property
    def num_samples(self) -> int:
        return self._number("samples") if "samples" in self.metadata else len(self._samples)

    @property
    def first_sample(self) -> int:
        return super().first_sample if "first_sample" in self.metadata else next(iter(self._samples), 0)

    @property
    def last_sample(self) -> int:
        return super().last_sample if "last_sample" in self.metadata else next(reversed(self._samples), -1)

    def block_rows(self, site: str) -> int:
        return max(1, self.num_rows)

    def release(self) -> None:
        super().release()
        self.release_rows()

    def release_rows(self) -> None:
        """Frees the metadata in the body too, unless the index is in memory."""
        self._layer = None
        if self._index is None:
            self.__dict__.pop("_body", None)

    def rows(self, site: str, layer: int, begin: int, end: int, verify: bool = False) -> Rows:
        """Keeps the layer that was read last. gzip compares the data with its checksum, also without `verify`."""
        self._check(site, layer, begin, end)
        with self._lock:
            held = self._layer  # another thread may release the rows
            if held is None or held[0] != layer:
                held = self._layer = (layer, self._read_layer(layer))
        return Rows(held[1][begin:end], None)

    def rows_of_each(self, names: Sequence[tuple[str, int]], begin: int, end: int) -> list[Rows]:
        """Reads all layers in one pass over the file."""
        done: Counter = Counter()

        def take(layer: object, array: np.ndarray) -> np.ndarray | None:
            if array.ndim != 2:
                return None
            first, done[layer] = done[layer], done[layer] + len(array)
            part = array[max(begin - first, 0) : max(end - first, 0)]
            return part if len(part) else None

        data = self.load(take)
        parts = {
            layer: [e["activation"] for e in entries if e["activation"] is not None] for layer, entries in data.items()
        }
        empty = np.empty((0, self.d_model), STORED[self._dtype])
        all_rows = [Rows(np.concatenate([empty, *parts.get(layer, ())]), None) for _, layer in names]
        if any(len(rows.stored) != end - begin for rows in all_rows):
            raise ShardError(f"{self.url} is damaged: it has fewer rows than its header says")
        return all_rows

    def load(self, take: Take) -> dict:
        """The whole pickle, each array replaced by take(layer, array). Raises ShardError unless it is a shard."""
        try:
            file = io.BufferedReader(_Sequential(self._file), _READ_BYTES)
            data: Any = load_shard(file, self._max_bytes, take, self._max_bytes)
        except Unsafe as error:
            raise ShardError(f"{self.url} is not a pickle that can be trusted: {error}") from error
        if problem := problem_of(data):
            raise ShardError(f"{self.url} is not a shard: {problem}")
        for entries in data.values():
            for entry in entries:
                entry["activation"] = entry["activation"].value
        return data

    @property
    def _max_bytes(self) -> int:
        """Of all arrays, and of the memory of all other values."""
        return BYTES_PER_BYTE * self._file.size + FREE_BYTES

    def _read_layer(self, layer: int) -> np.ndarray:
        data = self.load(lambda key, array: array if key == layer else None)
        arrays = [entry["activation"] for entry in data.get(layer, ())]
        rows, d_model = next(iter(self.names.values()))
        if not all(isinstance(array, np.ndarray) and array.ndim == 2 for array in arrays):
            raise ShardError(f"{self.url} is not a shard: a sample of layer {layer} lacks values [rows, d_model]")
        shape = [sum(map(len, arrays)), *({array.shape[1] for array in arrays} or {d_model})]
        if shape != [rows, d_model]:
            raise ShardError(f"{self.url} is damaged: layer {layer} is {shape}, its header says {rows} rows")
        return np.concatenate(arrays) if arrays else np.empty((0, d_model), np.float32)

    @property
    def _samples(self) -> list[int]:
        return self._body.index.sample_idx.tolist()

    def _load_index(self) -> Index:
        return self._body.index

    @cached_property
    def _body(self) -> _Body:
        data = self.load(lambda _, array: (array.shape, array.dtype.name))
        entries = next(iter(data.values()), [])
        arrays = [entry["activation"] for entry in entries]
        if any(len(shape) != 2 for shape, _ in arrays) or len({(shape[1], dtype) for shape, dtype in arrays}) > 1:
            raise ShardError(f"{self.url} is not a shard: its samples have different widths or types")
        if sum(shape[0] for shape, _ in arrays) > _MAX_ROWS:
            raise ShardError(f"{self.url} is not a shard: it has more than {_MAX_ROWS} rows")
        offsets = np.cumsum([0, *(shape[0] for shape, _ in arrays)], dtype=np.int64)
        is_selection = any("positions" in entry for entry in entries)
        are_tokens = not is_selection and self.metadata.get("tokens", str(offsets[-1])) == str(offsets[-1])
        if is_selection:
            lists = [entry.get("positions", ()) for entry in entries]
            if [len(positions) for positions in lists] != np.diff(offsets).tolist():
                raise ShardError(f"{self.url} is not a shard: its samples do not have one position per row")
            positions = np.array([position for positions in lists for position in positions], np.int32)
        else:
            positions = (np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))).astype(np.int32)
        index = Index(
            sample_idx=np.array([entry["sample_idx"] for entry in entries], np.int64),
            sample_offsets=offsets if are_tokens else None,  # pyrefly: ignore[bad-argument-type]
            row_offsets=offsets,
            token_ids=None,
            positions=positions if are_tokens or is_selection else None,
            kept=[entry.get("kept", {}) for entry in entries] if any("kept" in e for e in entries) else None,
            previews=[entry["text_preview"] for entry in entries],
        )
        return _Body(index, tuple(data), arrays[0][0][1] if arrays else None, _DTYPES[arrays[0][1]] if arrays else None)
