"""Stored bytes as arrays that numpy, torch or jax can compute with.

bf16 stays uint16 until the end: numpy has no such type, and copies the type of ml_dtypes one value at a time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import MissingPackage

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

# The types of stored rows: safetensors' name and the name in a spec.
NAMES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "I8": "int8", "I32": "int32"}
# The types of rows in memory until they are returned.
STORED = {
    name: np.dtype(kind)
    for name, kind in (("bf16", "<u2"), ("fp16", "<f2"), ("fp32", "<f4"), ("int8", "i1"), ("int32", "<i4"))
}
# The types of tensors in memory by safetensors' name, except for BF16.
TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "U8": "u1", "I32": "<i4", "U32": "<u4", "I64": "<i8"}
_WANTED = ("float32", "float16", "bfloat16")
KINDS = ("numpy", "torch", "jax")


@dataclass(frozen=True)
class Rows:
    """Rows of one layer as they are stored: uint16 for bf16, and for int8 the scale of each row."""

    stored: np.ndarray  # [n, width], or [n, layers, width] of several layers
    scale: np.ndarray | None  # fp32 [n] or [n, layers]

    def take(self, chosen: slice | np.ndarray) -> "Rows":
        """The chosen rows, in that order: a view for a slice, a copy for numbers, which may be [n, layers]."""
        return Rows(self.stored[chosen], None if self.scale is None else self.scale[chosen])

    def put(self, places: slice | np.ndarray, rows: "Rows") -> None:
        """Writes `rows` to these places. The dtypes are equal."""
        self.stored[places] = rows.stored
        if self.scale is not None:
            self.scale[places] = rows.scale

    def to_float32(self) -> np.ndarray:
        """fp32 of the same shape: bf16 exactly, int8 times the scale of its row."""
        if self.stored.dtype == np.uint16:  # bf16 is the upper half of a float32
            wide = self.stored.astype(np.uint32)
            wide <<= 16
            return wide.view(np.float32)
        values = self.stored.astype(np.float32, copy=False)
        return values if self.scale is None else values * self.scale[..., None]


def empty_rows(shape: tuple[int, int], dtype: str) -> Rows:
    """Rows of arbitrary values. shape: (n, width). dtype: the name in a spec."""
    scale = np.empty(shape[:-1], np.float32) if dtype == "int8" else None
    return Rows(np.empty(shape, STORED[dtype]), scale)


def as_stored(data: np.ndarray, dtype: str) -> np.ndarray:
    """uint8 [n] as values of a safetensors type, with bf16 as the uint16 of its bits."""
    return data.view("<u2") if dtype == "BF16" else data.view(TYPES[dtype])


def to_float16(values: np.ndarray, what: str = "rows") -> np.ndarray:
    """Rounds to float16. Raises ValueError for a finite value that would become infinite. what: named in the error."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float16)
    if (np.isinf(narrow) & np.isfinite(values)).any():
        raise ValueError(f"Failed to convert {what} to float16: a value is beyond its largest, 65504; ask for float32")
    return narrow


def check_kind(as_: str, dtype: str | None) -> None:
    """Raises ValueError for an unknown kind or dtype, and MissingPackage, before any byte is read."""
    if as_ not in KINDS:
        raise ValueError(f"as_ is {as_!r}, known are {', '.join(KINDS)}")
    if dtype is not None and dtype not in _WANTED:
        raise ValueError(f"dtype is {dtype!r}, known are {', '.join(_WANTED)}")
    if as_ == "numpy" and dtype == "bfloat16" and ml_dtypes is None:
        raise MissingPackage("make numpy arrays of bfloat16", "ml_dtypes")
    if as_ != "numpy":
        _import(as_)


def finish(rows: Rows, as_: str = "numpy", dtype: str | None = None):
    """The rows as an array of their shape and of the requested kind. `dtype` None: as stored, int8 as float32.

    Raises ValueError for a value that float16 cannot hold.
    """
    if dtype == "float16" and rows.stored.dtype != np.float16:
        rows = Rows(to_float16(rows.to_float32()), None)
    if as_ == "torch":
        return _as_torch(rows, dtype)
    stored = rows.stored
    if stored.dtype == np.uint16 and dtype in (None, "bfloat16") and ml_dtypes:
        values = stored.view(ml_dtypes.bfloat16)
    elif (stored.dtype == np.float16 and dtype in (None, "float16")) or (stored.dtype == np.int32 and dtype is None):
        values = stored
    else:
        values = rows.to_float32()
        if dtype == "bfloat16":
            values = values.astype(ml_dtypes.bfloat16)  # pyrefly: ignore[missing-attribute]
    return _import("jax").numpy.asarray(values) if as_ == "jax" else values


def _as_torch(rows: Rows, dtype: str | None):
    torch = _import("torch")
    if dtype == "float32":  # numpy needs half of the processor time of torch's threads
        return torch.from_numpy(_writable(rows.to_float32()))
    if rows.stored.dtype == np.uint16:
        values = torch.from_numpy(_writable(rows.stored).view(np.int16)).view(torch.bfloat16)
    else:
        is_whole = rows.stored.dtype in (np.float16, np.int32)
        values = torch.from_numpy(_writable(rows.stored if is_whole else rows.to_float32()))
    return values.to(getattr(torch, dtype)) if dtype else values


def _writable(values: np.ndarray) -> np.ndarray:
    """Copies a read-only array: torch shares the memory of an array, and warns if it is read-only."""
    return values if values.flags.writeable else values.copy()


def _import(name: str) -> Any:
    try:
        if name == "torch":
            import torch
            import torch.utils.data

            return torch
        import jax.numpy

        return jax
    except ImportError:
        raise MissingPackage(f"make {name} arrays", name) from None
