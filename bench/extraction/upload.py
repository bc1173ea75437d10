"""Encoding and uploading shards, compared with the same client sending ready bytes to a sink."""

import itertools
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from gleaner_reader.format.checksums import crc32c
from gleaner_worker.extract.pipeline import Pipeline
from gleaner_worker.shards.encode import CONTENT_TYPES, encode_shard
from gleaner_worker.shards.plan import ShardPlan
from gleaner_worker.shards.shard_bytes import ShardBytes
from gleaner_worker.storage.objects import Bucket

from .job import samples_of
from .sink import running_sink
from .timing import Figure, Report, speed_up, take_turns
from .workplace import Workplace

CLAIM = "encode and upload into a bucket on the loopback against the same bytes sent raw, as a share of its speed"
_SHARDS = 4
_UPLOADS = 4  # at once
_STATS = {"mean": 0.0, "norm": 1.0, "max_abs": 1.0, "non_finite": 0}
_names = itertools.count()


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    plan, values = a_plan(place)
    with running_sink() as bucket:
        for file_format, dtype in (
            ("safetensors", ml_dtypes.bfloat16),
            ("safetensors", np.float32),
            ("safetensors.zst", ml_dtypes.bfloat16),
            ("pkl.gz", np.float32),
        ):
            rows = {"resid_post": values.astype(dtype)}
            report.figures.append(_measure(place, bucket, file_format, plan, rows))
    report.notes.append(
        "raw: the encoded bytes, checksum known, sent again. With a codec the bound is the codec and not the upload: "
        "its own speed is given, in MB of rows per second over all cores."
    )
    return report


def a_plan(place: Workplace) -> tuple[ShardPlan, np.ndarray]:
    """The plan of a shard, and its values: fp32 [layers, tokens, 896]."""
    layers, samples = (2, 8) if place.is_quick else (12, 64)
    plan = ShardPlan(1, 0, samples - 1, tuple(samples_of(place.token_rows(samples, 128), "all")), True)
    return plan, np.random.default_rng(0).standard_normal((layers, plan.tokens, 896), np.float32)


def send_encoded(bucket: Bucket, plan: ShardPlan, rows: dict[str, np.ndarray], uploads: int) -> int:
    """Encodes and uploads shards; returns their bytes."""
    sizes = []

    def make() -> ShardBytes:
        made = encode_rows("safetensors", plan, rows)
        sizes.append(made.size)
        return made

    _send(bucket, "safetensors", make, uploads)
    return sum(sizes)


def encode_rows(file_format: str, plan: ShardPlan, rows: dict[str, np.ndarray]) -> ShardBytes:
    layers = tuple(range(len(rows["resid_post"])))
    stats = {f"resid_post.{layer}": _STATS for layer in layers}
    return encode_shard(file_format, plan, dict.fromkeys(rows, layers), rows, {}, {"schema": "gleaner/1"}, stats)


def _measure(
    place: Workplace,
    bucket: Bucket,
    file_format: str,
    plan: ShardPlan,
    rows: dict[str, np.ndarray],
) -> Figure:
    def encode() -> ShardBytes:
        return encode_rows(file_format, plan, rows)

    ready = encode().read()
    checksum = crc32c(ready)
    seconds = take_turns(
        {
            "raw": lambda: _send(bucket, file_format, lambda: ShardBytes([ready], [checksum])),
            "encoded": lambda: _send(bucket, file_format, encode),
        },
        place.rounds(5),
    )
    megabytes = _SHARDS * rows["resid_post"].nbytes / 1e6
    ready_megabytes = _SHARDS * len(ready) / 1e6
    detail = (
        f"{megabytes / min(seconds['encoded']):.0f} MB/s encoded, raw {ready_megabytes / min(seconds['raw']):.0f} MB/s"
    )
    dtype = rows["resid_post"].dtype.name
    return speed_up(f"{file_format}, {dtype}", seconds["raw"], seconds["encoded"], None, detail)


def _send(bucket: Bucket, file_format: str, make: Callable[[], ShardBytes], uploads: int = _UPLOADS) -> None:
    """Uploads several shards at once beside the next encoding, as the extraction does."""

    def shards() -> Iterator[ShardBytes]:
        for _ in range(_SHARDS):
            yield make()

    def upload(data: ShardBytes) -> None:
        bucket.create(f"activations/bench/{next(_names)}", data, {}, CONTENT_TYPES[file_format])

    with Pipeline() as pipeline:
        is_done = pipeline.each("upload", pipeline.stage("encode", shards(), ahead=1), upload, uploads)
        pipeline.wait_until(is_done)
