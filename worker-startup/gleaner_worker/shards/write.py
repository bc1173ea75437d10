"""One shard as one file: safetensors, or the seeds' pickle. The same values always make the same bytes."""

import gzip
import json
import pickle

import numpy as np

from ..disk import writing
from .plan import ShardPlan

CONTENT_TYPES = {"safetensors": "application/octet-stream", "pkl.gz": "application/gzip"}
_SAFETENSORS_NAMES = {"bfloat16": "BF16", "float32": "F32", "int32": "I32", "int64": "I64"}


def sample_offsets(plan: ShardPlan) -> np.ndarray:
    """int64 [S + 1]: sample s owns rows offsets[s] to offsets[s + 1]."""
    return np.cumsum([0, *(len(sample.token_ids) for sample in plan.samples)], dtype=np.int64)


def write_shard(
    path: str, file_format: str, plan: ShardPlan, layers: dict[int, np.ndarray], header: dict[str, str]
) -> None:
    """Writes the shard to `path`; raises Failure when the disk is full. `header`: safetensors' __metadata__."""
    with writing(path):
        if file_format == "pkl.gz":
            _write_pickle(path, plan, layers)
        else:
            write_safetensors(path, shard_tensors(plan, layers), header)


def shard_tensors(plan: ShardPlan, layers: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
    tensors = {f"resid_post.{layer}": rows for layer, rows in layers.items()}
    ids = [sample.token_ids for sample in plan.samples]
    tensors["token_ids"] = np.concatenate([np.empty(0, np.int32), *ids])
    tensors["sample_offsets"] = sample_offsets(plan)
    tensors["sample_idx"] = np.array([sample.index for sample in plan.samples], dtype=np.int64)
    return tensors


def write_safetensors(path: str, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """safetensors' format, written here because the library orders __metadata__ by chance and copies every tensor."""
    # 8-byte values first, as the library does, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))


def _write_pickle(path: str, plan: ShardPlan, layers: dict[int, np.ndarray]) -> None:
    """dict layer -> list of {sample_idx, activation [length, d_model] fp32, shape, text_preview}, gzip level 1."""
    offsets = sample_offsets(plan)
    content = {
        layer: [
            {
                "sample_idx": sample.index,
                "activation": _rows(rows, offsets, position),
                "shape": (len(sample.token_ids), rows.shape[1]),
                "text_preview": sample.preview,
            }
            for position, sample in enumerate(plan.samples)
        ]
        for layer, rows in layers.items()
    }
    with (
        open(path, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=1, mtime=0) as file,
    ):
        pickler = pickle.Pickler(file, protocol=4)
        # No memo: with it the bytes depend on which equal objects happen to be one, and every array is kept twice.
        pickler.fast = True
        pickler.dump(content)


def _rows(rows: np.ndarray, offsets: np.ndarray, position: int) -> np.ndarray:
    return rows[offsets[position] : offsets[position + 1]].astype(np.float32, copy=False)
