"""Estimates the size of a run and prints it as one line of JSON.

    python -m gleaner_worker.estimate --spec JSON --home FOLDER (--file PATH ... | --bucket B --prefix datasets/RUN/)

Reads the model's small files and a sample of the streams, or small streams whole.
Exit status: 0, or 2 when the estimate failed, or 3 when the model or the streams could not be read; with the reason on
the last line of stderr. Earlier lines report waits for a hub.
"""

import argparse
import json
import logging
import os
import re
import sys
import tempfile

from gleaner_reader.format.errors import printable

from ..failures import Failure
from ..model.files.hub import Hub, own_hub, print_wait
from ..model.files.model_source import find_spec_files
from ..model.program.row_selection import check_token_selection, row_limits
from ..model.weights.reduction_weights import read_capture
from ..records.lines.stream import no_lines
from ..records.samples.tokenize_process import limited_settings
from ..shards.plan import Capacity
from ..shards.windows import window_limits
from ..spec.read_spec import read_spec
from ..spec.spec import Spec
from ..storage.objects import Bucket, make_client
from .blocks import BLOCK_BYTES, BLOCKS, FileSource, ObjectSource, Source, sample_blocks
from .count import common_reasons
from .counter import StreamCounter

_STREAM = re.compile(r"stream_\d+\.jsonl(\.gz)?")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_worker.estimate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--spec", required=True, help="the complete spec, as JSON")
    parser.add_argument("--home", required=True, help="folder for the small files of models")
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--bucket")
    parser.add_argument("--prefix", help="a folder of the bucket with streams, or one stream")
    parser.add_argument("--project")
    parser.add_argument("--sample-bytes", type=int, default=BLOCKS * BLOCK_BYTES, help="most bytes of streams to read")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    try:
        bucket = Bucket(make_client(args.project), args.bucket) if args.bucket else None
        sources: list[Source] = [FileSource(path) for path in args.file]
        if bucket and args.prefix:
            sources += _streams(bucket, args.prefix)
        if not sources:
            raise Failure("stream", "Failed to estimate: there is no stream; name a file, or a run that has streams")
        spec = read_spec(args.spec)
        report = estimate(spec, sources, args.home, bucket, args.sample_bytes, own_hub(print_wait))
        print(json.dumps(report), flush=True)
    except (Failure, OSError) as error:
        print(printable(str(error)), file=sys.stderr, flush=True)
        return 2 if isinstance(error, Failure) and error.kind in ("stream", "model") else 3
    return 0


def _streams(bucket: Bucket, prefix: str) -> list[Source]:
    """The streams directly in the folder `prefix`, or the one object of that name."""
    streams = [info for info in bucket.list(prefix) if _STREAM.fullmatch(info.name.removeprefix(prefix).lstrip("/"))]
    streams = streams or [info for info in bucket.list(prefix) if info.name == prefix]
    return [ObjectSource(bucket, info) for info in streams]


def estimate(
    spec: Spec,
    sources: list[Source],
    home: str,
    bucket: Bucket | None,
    sample_bytes: int = BLOCKS * BLOCK_BYTES,
    hub: Hub | None = None,
) -> dict:
    """Returns the estimate as the object that main prints. sample_bytes: the most bytes of the streams to read.

    Reads whole streams if they are not larger than `sample_bytes`, or if their lines are too long to sample. Raises
    Failure when the model or a stream cannot be used.
    """
    for source in sources:
        if source.size == 0:
            raise no_lines(source.name)
    files = find_spec_files(spec, home, bucket, hub=hub, weights=False)
    capture, _ = read_capture(spec, files)
    config = capture.config
    settings = limited_settings(files.folder, spec, config.vocab_size, config.max_positions)
    max_length = spec.max_length(config.max_positions)
    check_token_selection(spec, max_length)
    capacity = Capacity(spec.shard_size_bytes, capture.row_bytes, spec.selection.is_pool, capture.sample_bytes)
    limits = window_limits(spec, capture), row_limits(spec, max_length)
    total_bytes = sum(source.size for source in sources)
    sampled = None if total_bytes <= sample_bytes else sample_blocks(sources, size=max(1, sample_bytes // BLOCKS))
    with tempfile.TemporaryDirectory(prefix="gleaner-estimate-") as folder:
        counter = StreamCounter(os.path.join(folder, "lines"), settings, capacity, capture, *limits)
        found = counter.whole(sources) if sampled is None else counter.sample(sampled, sources)
    reductions = capture.sizes_of_reductions(spec.compute_dtype)
    return ({"reductions": reductions} if reductions else {}) | {
        "schema": "gleaner/1",
        "model": {"name": files.name, "revision": files.revision, "family": config.family, "d_model": config.d_model},
        "layers": len(capture.layers),
        "deepest_layer": capture.depth - 1,
        "model_layers": config.num_layers,
        "row_bytes": capture.row_bytes,
        "streams": len(sources),
        "stream_bytes": total_bytes,
        "exact": sampled is None,
        "sample": {"blocks": found.blocks, "lines": found.lines, "bytes": round(found.bytes)},
        "totals": {name: value.record() for name, value in found.totals.items()},
        "computed_tokens": round(found.computed_tokens),
        "generated_tokens": round(found.totals["samples"].estimate * spec.new_tokens),
        "operations": found.operations,
        "reject_reasons": common_reasons(counter.reasons),
        "warnings": list(settings.warnings),
    }


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
