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
NAMES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "I8": "int8"}
# The types of rows in memory until they are returned.
STORED = {name: np.dtype(kind) for name, kind in (("bf16", "<u2"), ("fp16", "<f2"), ("fp32", "<f4"), ("int8", "i1"))}
# The types of tensors in memory by safetensors' name, except for BF16.
TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "U8": "u1", "I32": "<i4", "I64": "<i8"}
_WANTED = ("float32", "float16", "bfloat16")
KINDS = ("numpy", "torch", "jax")


@dataclass(frozen=True)
class Rows:
    """Rows of one layer as they are stored: uint16 for bf16, and for int8 the scale of each row."""

    stored: np.ndarray  # [n, d_model]
    scale: np.ndarray | None  # fp32 [n]


def as_stored(data: np.ndarray, dtype: str) -> np.ndarray:
    """uint8 [n] as values of a safetensors type, with bf16 as the uint16 of its bits."""
    return data.view("<u2") if dtype == "BF16" else data.view(TYPES[dtype])


def widen(bits: np.ndarray) -> np.ndarray:
    """bf16 as uint16 -> float32, exactly: bf16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_float32(stored: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """uint16 (bf16), float16, float32, or int8 with the scale of each row -> float32 of the same shape."""
    if stored.dtype == np.uint16:
        return widen(stored)
    values = stored.astype(np.float32, copy=False)
    return values if scale is None else values * scale[:, None]


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


def finish(stored: np.ndarray, scale: np.ndarray | None, as_: str = "numpy", dtype: str | None = None):
    """Stored rows [n, d] as an array of the requested kind. `dtype` None: as stored, int8 as float32.

    Raises ValueError for a value that float16 cannot hold.
    """
    if dtype == "float16" and stored.dtype != np.float16:
        stored, scale = to_float16(to_float32(stored, scale)), None
    is_bf16 = stored.dtype == np.uint16
    if as_ == "torch":
        return _as_torch(stored, scale, is_bf16, dtype)
    if is_bf16 and dtype in (None, "bfloat16") and ml_dtypes:
        values = stored.view(ml_dtypes.bfloat16)
    elif stored.dtype == np.float16 and dtype in (None, "float16"):
        values = stored
    else:
        values = to_float32(stored, scale)
        if dtype == "bfloat16":
            values = values.astype(ml_dtypes.bfloat16)  # pyright: ignore[reportOptionalMemberAccess]
    return _import("jax").numpy.asarray(values) if as_ == "jax" else values


def _as_torch(stored: np.ndarray, scale: np.ndarray | None, is_bf16: bool, dtype: str | None):
    torch = _import("torch")
    if is_bf16:
        values = torch.from_numpy(_writable(stored).view(np.int16)).view(torch.bfloat16)
    elif stored.dtype == np.float16:
        values = torch.from_numpy(_writable(stored))
    else:
        values = torch.from_numpy(_writable(to_float32(stored, scale)))
    return values.to(getattr(torch, dtype)) if dtype else values


def _writable(values: np.ndarray) -> np.ndarray:
    """Copies a read-only array: torch shares the memory of an array, and warns if it is read-only."""
    return values if values.flags.writeable else values.copy()


def _import(name: str) -> Any:
    try:
        if name == "torch":
            import torch  # pyright: ignore[reportMissingImports]

            return torch
        import jax.numpy

        return jax
    except ImportError:
        raise MissingPackage(f"make {name} arrays", name) from None
