"""Encodes a shard as one file, in each format. Equal values make equal bytes on every machine."""

import json
import os
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gleaner_reader.format.checksums import as_text, crc32c
from gleaner_reader.format.convert import TYPES

from ..architecture.sites import MOMENTS, Capture
from .index import index_tensors
from .pickle_shard import encode_pickle
from .plan import ShardPlan
from .shard_bytes import ShardBytes, bytes_of, checksums_of
from .zstd_seekable import compress, frame_bytes

# No content encoding is set, because Cloud Storage decompresses an object with one when it sends the object.
CONTENT_TYPES = {
    "safetensors": "application/octet-stream",
    "safetensors.zst": "application/zstd",
    "pkl.gz": "application/gzip",
}
_SAFETENSORS_NAMES = {np.dtype(kind).name: name for name, kind in TYPES.items()} | {"bfloat16": "BF16"}


def encode_shard(
    file_format: str,
    plan: ShardPlan,
    layers: Mapping[str, tuple[int, ...]],
    rows: dict[str, np.ndarray],
    scale: dict[str, np.ndarray],
    identity: dict[str, str],
    stats: dict[str, dict],
    threads: int | None = None,
    sums: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> ShardBytes:
    """Encodes the shard in `file_format`: "safetensors", "safetensors.zst" or "pkl.gz".

    layers: site -> its layers. rows: site -> [L, rows, width] as stored, contiguous; no copy is made. scale: site ->
    [L, rows] fp32, for int8 only. identity: the metadata of the shard. stats: `{site}.{layer}` -> statistics. sums:
    those of moment_tensors. The file holds all of them for readers.
    """
    threads = threads or os.cpu_count() or 1
    metadata = identity | {"stats": json.dumps(stats, separators=(",", ":"))}
    if file_format == "pkl.gz":
        ((site, values),) = rows.items()
        metadata |= {"site": site, "d_model": str(values.shape[-1]), "dtype": values.dtype.name}
        return ShardBytes(encode_pickle(plan, dict(zip(layers[site], values, strict=True)), metadata, threads))
    tensors = shard_tensors(plan, layers, rows, scale) | dict(sums)
    checksums = dict(
        zip(tensors, checksums_of([bytes_of(tensor) for tensor in tensors.values()], threads), strict=True)
    )
    texts = {name: as_text(checksum) for name, checksum in checksums.items()}
    header, ordered = _layout(tensors, metadata | {"checksums": json.dumps(texts, separators=(",", ":"))})
    if file_format == "safetensors.zst":
        return ShardBytes(compress([np.frombuffer(header, np.uint8), *_pieces(ordered)], threads))
    buffers = [header, *(bytes_of(tensor) for tensor in ordered.values())]
    return ShardBytes(buffers, [crc32c(header), *(checksums[name] for name in ordered)])


def encode_tensors(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> ShardBytes:
    """Encodes any C-contiguous tensors as a safetensors file."""
    header, ordered = _layout(tensors, metadata)
    return ShardBytes([header, *(bytes_of(tensor) for tensor in ordered.values())])


def shard_tensors(
    plan: ShardPlan, layers: Mapping[str, tuple[int, ...]], rows: dict[str, np.ndarray], scale: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The tensors of a shard by name: the index, then each `{site}.{layer}.scale` [rows] and `{site}.{layer}`."""
    tensors = index_tensors(plan)
    for suffix, arrays in ((".scale", scale), ("", rows)):
        for site, values in arrays.items():
            tensors |= {f"{site}.{layer}{suffix}": values[number] for number, layer in enumerate(layers[site])}
    return tensors


def moment_tensors(capture: Capture, moments: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sums of samples by the names of their tensors, such as resid_post.12.squares [samples, D]."""
    return {
        f"{site}.{layer}.{kind}": moments[f"{site}.{kind}"][place]
        for site, layers in capture.moments
        for place, layer in enumerate(layers)
        for kind in MOMENTS
    }


def _layout(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> tuple[bytes, dict[str, np.ndarray]]:
    """The safetensors header, and the tensors in the order of the header.

    Written here because the library orders __metadata__ by chance and copies every tensor.
    """
    # The widest values come first, as in the library, so that every tensor is aligned.
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].itemsize))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, tensor in ordered.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, ordered


def _pieces(tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    pieces = []
    for tensor in tensors.values():
        data = bytes_of(tensor)
        row_bytes = tensor.nbytes // len(tensor) if len(tensor) else 1
        step = frame_bytes(row_bytes)
        pieces += [data[begin : begin + step] for begin in range(0, len(data), step)]
    return pieces
