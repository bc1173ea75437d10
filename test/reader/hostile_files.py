"""Hostile files: small headers and tensors to build them from."""

import json
import struct

import gleaner_reader
from stored_run import a_plan, encode, some_rows


def read_everything(path):
    shard = gleaner_reader.open(path)
    shard.index()
    return {(site, layer): shard.read(layer, site, verify=True) for site, layer in shard.names}, shard.metadata


def a_file(tmp_path, data, name="shard_0001.safetensors"):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def a_header(header, body=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def a_tensor(dtype="F32", shape=(1, 1), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more


def a_shard(file_format="safetensors", dtype="bf16", **options):
    plan = a_plan(count=20, keep=True, tokens=slice(0, 4), **options)
    rows, scale, _ = some_rows(plan, ("resid_post",), (0, 1), 8, dtype)
    return encode(plan, rows, scale, (0, 1), file_format).read()
