"""safetensors' header: the place of each tensor. Every value of the header is checked before its use.

The format (https://github.com/huggingface/safetensors#format): 8 bytes of length, little endian; as many bytes of
JSON; then the tensors, without gaps.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from .errors import ShardError
from .limits import MAX_HEADER_BYTES, MAX_TENSORS

ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "BOOL": 1}
ITEM_BYTES |= {f"{kind}{8 * size}": size for size in (1, 2, 4, 8) for kind in "IU"}
# Most headers are smaller, so one read is enough.
_FIRST_READ = 1 << 16
_MAX_DIMENSIONS = 8
LAYOUT = ("header_bytes", "tensors")  # see `SafetensorsHeader.layout`


@dataclass(frozen=True)
class TensorInfo:
    """The type, the shape and the bytes [begin, end) of one tensor."""

    dtype: str  # as safetensors names it
    shape: tuple[int, ...]
    begin: int  # in the file
    end: int


@dataclass(frozen=True)
class SafetensorsHeader:
    """The content of a header. metadata: its entry `__metadata__`. tensors: by name."""

    metadata: dict[str, str]
    tensors: dict[str, TensorInfo]

    @property
    def layout(self) -> dict:
        """The header without its metadata, as metadata.json of a stream repeats it; `parse_layout` reads it."""
        data = min(tensor.begin for tensor in self.tensors.values())
        tensors = {
            name: {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": [info.begin - data, info.end - data]}
            for name, info in self.tensors.items()
        }
        return dict(zip(LAYOUT, (data, tensors), strict=True))


def read_safetensors_header(
    read: Callable[[int, int], bytes | memoryview], size: int, name: str, first_read: int = _FIRST_READ
) -> SafetensorsHeader:
    """The header of a file of `size` bytes, as `read_header_text` reads it. Raises ShardError with name and fault."""
    try:
        text = read_header_text(read, size, first_read)
    except ValueError as error:
        raise ShardError(f"{name} cannot be read: {error}") from error
    try:
        return parse_safetensors_header(text, size)
    except (ValueError, RecursionError) as error:
        raise ShardError(f"{name} cannot be read: its header {error}") from error


def read_header_text(read: Callable[[int, int], bytes | memoryview], size: int, first_read: int = _FIRST_READ) -> bytes:
    """The JSON of a header. Raises ValueError with a sentence about "it", the file.

    read(begin, end): returns those bytes of the file. first_read: bytes of the first read.
    """
    head = bytes(read(0, min(size, max(first_read, 8)))) if size >= 8 else b""
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > size - 8:
        raise ValueError(f"it has {size} bytes, which cannot hold its header; it was cut short")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"its header would have {length} bytes; the limit is {MAX_HEADER_BYTES}")
    if len(head) < 8 + length:
        head += bytes(read(len(head), 8 + length))
    return head[8 : 8 + length]


def parse_safetensors_header(text: bytes, size: int) -> SafetensorsHeader:
    """The header of a file of `size` bytes. Raises ValueError or RecursionError; messages complete "its header …"."""
    try:
        header = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ValueError("is not text") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("is not a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("has a __metadata__ that does not map text to text")
    return SafetensorsHeader(metadata, parse_layout(8 + len(text), header, size))


def parse_layout(header_bytes: int, entries: dict[str, object], size: int | None) -> dict[str, TensorInfo]:
    """The tensors of a file of `size` bytes, None for any. Raises ValueError likewise."""
    if not _are_sizes([header_bytes]):
        raise ValueError(f"has {header_bytes!r:.50} bytes")
    if len(entries) > MAX_TENSORS:
        raise ValueError(f"describes {len(entries)} tensors, at most {MAX_TENSORS} are read")
    tensors = {name: _parse_tensor(name, entry, header_bytes) for name, entry in entries.items()}
    end = header_bytes
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != end:
            raise ValueError(
                f"puts {name} at byte {tensor.begin}, where byte {end} is due: tensors overlap or leave a gap"
            )
        end = tensor.end
    if size is not None and end != size:
        raise ValueError(f"describes {end} bytes, the file has {size}")
    return tensors


def _parse_tensor(name: str, entry: object, data: int) -> TensorInfo:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"describes {name:.100} by other fields than dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ValueError(f"gives {name:.100} the dtype {dtype!r:.50}, known are {', '.join(ITEM_BYTES)}")
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"gives {name:.100} the shape {shape!r:.50}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"puts {name:.100} at {offsets!r:.50}")
    if offsets[1] - offsets[0] != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError(f"gives {name:.100} {str(offsets)[:50]} for {dtype} {str(shape)[:50]}, which has another size")
    return TensorInfo(dtype, tuple(shape), data + offsets[0], data + offsets[1])


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _unique(pairs: list[tuple[str, object]]) -> dict:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("has a name twice")
    return result


def _refuse(constant: str) -> None:
    raise ValueError(f"has {constant} in it")
