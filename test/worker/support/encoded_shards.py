"""Encoded shards to test with: plans, rows, and the file of each format."""

import base64
import io

import google_crc32c
import ml_dtypes
import numpy as np
import zstandard

from gleaner_reader.format.convert import as_stored
from gleaner_reader.format.safetensors_header import read_safetensors_header
from gleaner_worker.records.samples.sample import Sample
from gleaner_worker.shards.encode import encode_shard
from gleaner_worker.shards.plan import ShardPlan

FORMATS = ["safetensors", "safetensors.zst", "pkl.gz"]
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "int8": np.int8}
STATS = {"resid_post.0": {"mean": 0.5, "norm": 2.0, "max_abs": 3.0, "non_finite": 0}}


def a_plan(lengths=(3, 1, 4), positions=None, kept=None, pooled=False):
    samples = tuple(
        Sample(
            i * 2,
            np.arange(n, dtype=np.int32) + i,
            None if positions is None else np.array(positions[i], np.int32),
            f"text {i}",
            False,
            "" if kept is None else kept[i],
        )
        for i, n in enumerate(lengths)
    )
    return ShardPlan(1, 0, 2 * len(lengths), samples, True, pooled)


def some_rows(plan, layers=(0, 2), dtype="fp32", sites=("resid_post",), d_model=6):
    random = np.random.default_rng(0)
    shape = (len(layers), plan.rows, d_model)
    if dtype == "int8":
        rows = {site: random.integers(-127, 128, shape).astype(np.int8) for site in sites}
        return rows, {site: random.random(shape[:2]).astype(np.float32) for site in sites}
    return {site: random.standard_normal(shape).astype(DTYPES[dtype]) for site in sites}, {}


def encode(file_format, plan, rows, scale=None, layers=(0, 2), identity=None, threads=2):
    by_site = dict.fromkeys(rows, layers)
    return encode_shard(file_format, plan, by_site, rows, scale or {}, identity or {"a": "1", "b": "2"}, STATS, threads)


def plain(file_format, data):
    """The safetensors file in the data of a shard, as zstandard's own reader decompresses it."""
    if file_format == "safetensors":
        return data
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


def parse_tensors(data):
    """The tensors of a safetensors file, as views of `data`, and its metadata."""
    view = memoryview(data)
    header = read_safetensors_header(lambda begin, end: view[begin:end], len(view), "the data")
    tensors = {}
    for name, tensor in header.tensors.items():
        values = as_stored(np.frombuffer(view[tensor.begin : tensor.end], np.uint8), tensor.dtype).reshape(tensor.shape)
        tensors[name] = values.view(ml_dtypes.bfloat16) if tensor.dtype == "BF16" else values
    return tensors, header.metadata


def crc_of(data):
    return base64.b64encode(google_crc32c.Checksum(bytes(data)).digest()).decode()
