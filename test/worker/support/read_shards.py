"""The content of a stream's shards, read with the formats' own libraries and no code of the worker."""

import gzip
import io
import json
import pickle
import tempfile

import numpy as np
import safetensors.numpy
import zstandard


def read_shard(data, file_format):
    """({sample index: {"resid_post.0": fp32 [rows, d_model], …, "token_ids", "positions", "kept"}}, its metadata)."""
    if file_format == "pkl.gz":
        return _read_pickle(data), {}
    if file_format == "safetensors.zst":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
    tensors = load_tensors(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    kept = tensors["kept"].tobytes().decode().splitlines() if "kept" in tensors else None
    samples = {}
    tokens, rows = tensors["sample_offsets"], tensors.get("row_offsets", tensors["sample_offsets"])
    for number, index in enumerate(tensors["sample_idx"].tolist()):
        span = slice(rows[number], rows[number + 1])
        sample = {
            name: values[span].astype(np.float32) * (tensors[f"{name}.scale"][span][:, None] if _is_int8(values) else 1)
            for name, values in tensors.items()
            if "." in name and not name.endswith(".scale")
        }
        sample["token_ids"] = tensors["token_ids"][tokens[number] : tokens[number + 1]].tolist()
        if "positions" in tensors:
            sample["positions"] = tensors["positions"][span].tolist()
        if kept is not None:
            sample["kept"] = json.loads(kept[number])
        assert index not in samples
        samples[index] = sample
    return samples, header["__metadata__"]


def load_tensors(data):
    with tempfile.NamedTemporaryFile() as file:  # the library reads bf16 only from files
        file.write(data)
        file.flush()
        return safetensors.numpy.load_file(file.name)


def _is_int8(values):
    return values.dtype == np.int8


def _read_pickle(data):
    samples = {}
    for layer, entries in pickle.loads(gzip.decompress(data)).items():  # our own output
        assert len({entry["sample_idx"] for entry in entries}) == len(entries)
        for entry in entries:
            sample = samples.setdefault(entry["sample_idx"], {})
            assert entry["shape"] == entry["activation"].shape
            sample[f"layer {layer}"] = entry["activation"].astype(np.float32)
            sample |= {key: entry[key] for key in ("kept", "positions") if key in entry}
    return samples


def read_stream(outputs, file_format):
    """Every sample of the stream's shards; asserts that each is there once."""
    samples = {}
    for name in sorted(outputs):
        if name.startswith("shard_"):
            found, _ = read_shard(outputs[name], file_format)
            assert not samples.keys() & found.keys()
            samples |= found
    return samples
