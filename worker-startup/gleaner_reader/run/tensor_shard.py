"""A shard as safetensors, plain or in zstd's seekable format: any rows of any layer are read by one range."""

import re

import numpy as np

from ..format.checksums import as_text, crc32c
from ..format.convert import NAMES, STORED, Rows, as_stored
from ..format.errors import ShardError
from ..format.files import LocalFile
from ..format.forks import cached_property
from ..format.index import INDEX, Index, read_index
from ..format.limits import is_inflated
from ..format.safetensors_header import SafetensorsHeader, TensorInfo, parse_layout, read_safetensors_header
from ..format.seekable import FRAME_BYTES, File, Plain
from .shard import Shard

_ROWS = re.compile(r"([a-z_]+)\.(\d{1,6})")
_MOMENTS = re.compile(r"([a-z_]+)\.(\d{1,6})\.(?:sum|squares)")


class SafetensorsShard(Shard):
    """A plain file, or a file in zstd's seekable format. `_plain` reads the decompressed content."""

    def __init__(self, file: File):
        super().__init__(file)
        self._stated: dict[str, TensorInfo] | None = None  # by metadata.json
        self._samples: dict[str, int] = {}
        self.format = "safetensors"
        if file.url.endswith(".zst"):
            self.format, self._plain = "safetensors.zst", Plain(file)
        else:
            self._plain = file

    @cached_property
    def header(self) -> SafetensorsHeader:
        if isinstance(self._plain, Plain):
            return read_safetensors_header(self._plain.read, self._plain.size, self.url, self._plain.first_frame)
        return read_safetensors_header(self._plain.read, self._plain.size, self.url)

    @property
    def metadata(self) -> dict[str, str]:
        return self.header.metadata

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """The tensors by name, as metadata.json states them, or else the header."""
        return self._stated or self.header.tensors

    @property
    def layout(self) -> dict:
        return self.header.layout

    def accept(self, entry: dict) -> bool:
        try:
            size = self.size_bytes if self.format == "safetensors" else None
            tensors = parse_layout(entry["header_bytes"], entry["tensors"], size)
            samples = {key: entry[key] for key in ("first_sample", "last_sample")}
            end = max(tensor.end for tensor in tensors.values())
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        are_numbers = all(type(number) is int for number in samples.values())
        if entry.get("size_bytes") != self.size_bytes or not are_numbers or is_inflated(end, self.size_bytes):
            return False
        self._stated, self._samples = tensors, samples
        return True

    @cached_property
    def names(self) -> dict[tuple[str, int], tuple[int, int]]:
        tensors = {
            (match[1], int(match[2])): tensor
            for name, tensor in self.tensors.items()
            if (match := _ROWS.fullmatch(name))
        }
        if not tensors and not self.moments:
            raise ShardError(f"{self.url} holds no rows: no tensor in it is named like resid_post.0")
        if any(
            len(tensor.shape) != 2 or not tensor.shape[1] or tensor.dtype not in NAMES for tensor in tensors.values()
        ):
            raise ShardError(f"{self.url} cannot be read: its rows are not [rows, width] of {', '.join(NAMES)}")
        forms = {(site, tensor.shape, tensor.dtype) for (site, _), tensor in tensors.items()}
        if len(forms) > len({site for site, _ in tensors}) or len({shape[0] for _, shape, _ in forms}) > 1:
            raise ShardError(f"{self.url} cannot be read: the layers of a site have different shapes or types")
        return {key: (tensor.shape[0], tensor.shape[1]) for key, tensor in tensors.items()}

    @cached_property
    def dtypes(self) -> dict[str, str]:
        return {site: NAMES[self.tensors[f"{site}.{layer}"].dtype] for site, layer in self.names}

    @cached_property
    def moments(self) -> dict[tuple[str, int], int]:  # pyrefly: ignore[bad-override]
        found = {}
        for match in filter(None, map(_MOMENTS.fullmatch, self.tensors)):
            name, width = f"{match[1]}.{match[2]}", self.tensors[match[0]].shape[-1:]
            both = [self.tensors.get(f"{name}.{kind}") for kind in ("sum", "squares")]
            if not all(width) or any(
                each is None or (each.dtype, each.shape) != ("F32", (self.num_samples, *width)) for each in both
            ):
                raise ShardError(f"{self.url} cannot be read: its moments of {name} are not F32 [samples, width]")
            found[match[1], int(match[2])] = width[0]
        return found

    @property
    def num_rows(self) -> int:
        """Of a shard of moments alone, the index has the number: each row is of one token."""
        of_tokens = "positions" if "row_offsets" in self.tensors else "token_ids"
        return super().num_rows if self.names else self._length(of_tokens)

    @property
    def num_tokens(self) -> int:
        return self._length("token_ids")

    @property
    def num_samples(self) -> int:
        return self._length("sample_idx")

    @cached_property
    def checksums(self) -> dict[str, str]:
        """CRC-32C of each tensor, base64."""
        return self.stated("checksums")

    def block_rows(self, site: str) -> int:
        row_bytes = self.widths[site] * STORED[self.dtypes[site]].itemsize
        return max(1, FRAME_BYTES // row_bytes) if self.format == "safetensors.zst" else 1

    def rows(self, site: str, layer: int, begin: int, end: int, verify: bool = False) -> Rows:
        self._check(site, layer, begin, end)
        name = f"{site}.{layer}"
        stored = self.tensor(name, begin, end, verify)
        if self.dtypes[site] != "int8":
            return Rows(stored, None)
        return Rows(stored, self.tensor(self._scale_of(name), begin, end, verify))

    def read_rows(self, site: str, layer: int, begin: int, end: int, into: Rows) -> None:
        self._check(site, layer, begin, end)
        name = f"{site}.{layer}"
        self._read_into(name, begin, end, into.stored)
        if into.scale is not None:
            self._read_into(self._scale_of(name), begin, end, into.scale)

    def tensor(self, name: str, begin: int = 0, end: int | None = None, verify: bool = False) -> np.ndarray:
        """Rows begin..end of any tensor, as stored: bf16 as uint16. Raises ShardError for a missing tensor."""
        info = self.tensors.get(name)
        if info is None:
            raise ShardError(f"{self.url} cannot be read: it has no {name}")
        if verify:
            return self._verified(name)[begin:end]
        end = (info.shape[0] if info.shape else 1) if end is None else end
        data = self._plain.read(*self._range(name, begin, end))
        return as_stored(np.frombuffer(data, np.uint8), info.dtype).reshape(end - begin, *info.shape[1:])

    def _number(self, key: str) -> int:
        return self._samples[key] if key in self._samples else super()._number(key)

    def _read_into(self, name: str, begin: int, end: int, target: np.ndarray) -> None:
        if isinstance(self._plain, LocalFile):
            self._plain.read_into(*self._range(name, begin, end), target)
        else:
            target[:] = self.tensor(name, begin, end)

    def _range(self, name: str, begin: int, end: int) -> tuple[int, int]:
        """The bytes of rows begin..end of a tensor in the content."""
        info = self.tensors[name]
        row_bytes = (info.end - info.begin) // max(info.shape[0] if info.shape else 1, 1)
        return info.begin + begin * row_bytes, info.begin + end * row_bytes

    def _scale_of(self, name: str) -> str:
        """The tensor with the scales of int8 rows."""
        scale = self.tensors.get(f"{name}.scale")
        if scale is None or scale.dtype != "F32" or scale.shape != (self.num_rows,):
            raise ShardError(f"{self.url} cannot be read: {name} is int8 without one fp32 scale for each row")
        return f"{name}.scale"

    def _verified(self, name: str) -> np.ndarray:
        array = self.tensor(name)
        stated, actual = self.checksums.get(name), as_text(crc32c(array.reshape(-1).view(np.uint8)))
        if stated != actual:
            raise ShardError(f"{self.url} is damaged: {name} has the checksum {actual}, and was written with {stated}")
        return array

    def _load_index(self) -> Index:
        tensors = self.tensors
        stated = sum(tensors[name].end - tensors[name].begin for name in INDEX if name in tensors)
        # An array of 64-bit numbers for each 32-bit number of the file, twice.
        if is_inflated(4 * stated, self._file.size):
            raise ShardError(
                f"{self.url} cannot be read: its index would have {stated} bytes in a file of {self._file.size}; "
                "it is damaged"
            )
        return read_index(self.tensors, self.tensor, self.num_rows, self.url)

    def _length(self, name: str) -> int:
        tensor = self.tensors.get(name)
        if tensor is None or len(tensor.shape) != 1:
            raise ShardError(f"{self.url} cannot be read: it has no {name}")
        return tensor.shape[0]
