"""Estimates the size of a run and prints it as one line of JSON.

    python -m gleaner_worker.estimate --spec JSON --home FOLDER (--file PATH ... | --bucket B --prefix datasets/RUN/)

Reads the model's small files and a sample of the streams, or small streams whole.
Exit status: 0, or 2 when the estimate failed, with the reason on stderr.
"""

import argparse
import json
import logging
import math
import os
import re
import sys
import tempfile
from collections import Counter

from ..failures import Failure
from ..model.capture import Capture
from ..model.model_source import find_model, read_config
from ..model.row_selection import check_tokens, mode_of, row_limits
from ..objects import Bucket, make_client
from ..records.reader import make_reader
from ..records.sample import Reject
from ..records.stream import no_lines
from ..shards.plan import Capacity
from ..shards.windows import window_limits
from ..spec import Spec, parse_spec
from .blocks import BLOCK_BYTES, BLOCKS, FileSource, ObjectSource, Source, sample_blocks
from .count import Counts, Range, again_and_again, common, count_lines_of, extrapolate, plan_of

_STREAM = re.compile(r"stream_\d+\.jsonl(\.gz)?")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_worker.estimate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--spec", required=True, help="the complete spec, as JSON")
    parser.add_argument("--home", required=True, help="where the small files of models are kept")
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--bucket")
    parser.add_argument("--prefix", help="a folder of the bucket with streams, or one stream")
    parser.add_argument("--project")
    parser.add_argument("--sample-bytes", type=int, default=BLOCKS * BLOCK_BYTES, help="of the streams, at most")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    try:
        bucket = Bucket(make_client(args.project), args.bucket) if args.bucket else None
        sources: list[Source] = [FileSource(path) for path in args.file]
        if bucket and args.prefix:
            sources += _streams(bucket, args.prefix)
        if not sources:
            raise Failure("stream", "Failed to estimate: there is no stream")
        spec = parse_spec(json.loads(args.spec))
        print(json.dumps(estimate(spec, sources, args.home, bucket, args.sample_bytes)), flush=True)
    except (Failure, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        return 2
    return 0


def _streams(bucket: Bucket, prefix: str) -> list[Source]:
    """The streams directly in a folder, or the one object of that name."""
    found = [info for info in bucket.list(prefix) if _STREAM.fullmatch(info.name.removeprefix(prefix).lstrip("/"))]
    found = found or [info for info in bucket.list(prefix) if info.name == prefix]
    return [ObjectSource(bucket, info.name, info.size_bytes) for info in found]


def estimate(
    spec: Spec, sources: list[Source], home: str, bucket: Bucket | None, sample_bytes: int = BLOCKS * BLOCK_BYTES
) -> dict:
    """Reads the streams whole where they are no larger than `sample_bytes`, or where their lines are too long to
    sample.

    Raises the worker's own Failure when the model or a stream cannot be used.
    """
    for source in sources:
        if source.size == 0:
            raise no_lines(source.name)
    files = find_model(spec.model, home, bucket, revision=spec.revision, weights=False)
    config, layers = read_config(spec, files.folder)
    reader = make_reader(files.folder, spec, config.vocab_size, config.max_positions)
    check_tokens(spec, reader.max_length)
    row_bytes = Capture(config, layers, spec.sites, mode_of(spec), spec.dtype).row_bytes
    capacity = Capacity(spec.shard_size_bytes, row_bytes, spec.tokens == "mean")
    window, row = window_limits(spec, row_bytes), row_limits(spec, reader.max_length)
    depth, total_bytes = layers[-1] + 1, sum(source.size for source in sources)
    sampled = None if total_bytes <= sample_bytes else sample_blocks(sources, size=max(1, sample_bytes // BLOCKS))
    reasons: Counter = Counter()
    with tempfile.TemporaryDirectory(prefix="gleaner-estimate-") as folder:
        path = os.path.join(folder, "lines")

        def counted(data: bytes, stream: str):
            with open(path, "wb") as file:
                file.write(data)
            found = count_lines_of(path, stream, reader, capacity)
            reasons.update(found.reasons)
            return found

        if sampled is None:
            whole, plans = Counts(), []
            for source in sources:
                found = counted(source.read(0, source.size), source.name)
                if found.counts.lines == 0:
                    raise no_lines(source.name)
                for name, value in vars(found.counts).items():
                    setattr(whole, name, getattr(whole, name) + value)
                plans.append(plan_of(found.items, capacity, config, depth, window, row))
            totals = {name: Range(value, value, value) for name, value in vars(whole).items()}
            shards = sum(plan.shards for plan in plans)
            totals["shards"] = Range(shards, shards, shards)
            computed = sum(plan.computed_tokens for plan in plans)
            operations = sum(plan.operations for plan in plans)
            blocks, sampled_bytes, lines = len(plans), total_bytes, whole.lines
        else:
            samples, parts = [], []
            for block in sampled:
                found = counted(block.data, block.stream)
                samples += [item for item in found.items if not isinstance(item, Reject)]
                parts.append((found.counts, block.stream_bytes))
            if not parts:
                raise Failure("stream", "Failed to estimate: no line of the sample is short enough to be a record")
            totals = extrapolate(parts, total_bytes)
            plan = plan_of(again_and_again(samples, capacity), capacity, config, depth, window, row)
            totals["shards"] = _shards(totals["shard_bytes"], sources, total_bytes, plan.fill, capacity)
            scale = totals["tokens"].estimate / max(plan.tokens, 1)
            computed, operations = plan.computed_tokens * scale, plan.operations * scale
            blocks, sampled_bytes = len(parts), sum(size for _, size in parts)
            lines = sum(counts.lines for counts, _ in parts)
    return {
        "schema": "gleaner/1",
        "model": {"name": files.name, "revision": files.revision, "family": config.family, "d_model": config.d_model},
        "layers": len(layers),
        "deepest_layer": layers[-1],
        "model_layers": config.num_layers,
        "row_bytes": row_bytes,
        "streams": len(sources),
        "stream_bytes": total_bytes,
        "exact": sampled is None,
        "sample": {"blocks": blocks, "lines": lines, "bytes": round(sampled_bytes)},
        "totals": {name: value.record() for name, value in totals.items()},
        "computed_tokens": round(computed),
        "operations": operations,
        "reject_reasons": common(reasons),
        "warnings": list(reader.warnings),
    }


def _shards(shard_bytes: Range, sources: list[Source], total: int, fill: float, capacity: Capacity) -> Range:
    """The shards of all streams. Every stream has its own shards, the last of them partly filled."""

    def count(whole: float) -> int:
        return sum(max(1, math.ceil(whole * source.size / total / (fill * capacity.shard_bytes))) for source in sources)

    if math.isinf(shard_bytes.high):
        return Range(count(shard_bytes.estimate), len(sources), math.inf)
    return Range(count(shard_bytes.estimate), count(shard_bytes.low), count(shard_bytes.high))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
