"""Exports one layer of a run to numpy files: python -m gleaner_reader.export RUN --layer 12 --output FOLDER.

RUN: a folder, or gs://BUCKET/activations/RUN. Prints the export as JSON, and progress on stderr. Exit status: 0, or 1
with one line on stderr.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict

import gleaner_reader

from .npy import DTYPES, to_npy

_PROGRESS_EVERY_S = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_reader.export", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("run")
    parser.add_argument("--layer", type=int, required=True)
    parser.add_argument("--site", help="needed if the run has several sites")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument("--output", required=True, help="folder that does not exist yet")
    args = parser.parse_args()
    reported_at = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at > _PROGRESS_EVERY_S:
            reported_at = time.monotonic()
            print(f"{done:,} of {total:,} rows", file=sys.stderr, flush=True)

    try:
        run = gleaner_reader.open(args.run)
        if not isinstance(run, gleaner_reader.Run):
            raise ValueError(f"{args.run} is one shard: name the folder of its run")
        export = to_npy(run, args.output, args.layer, args.site, dtype=args.dtype, progress=progress)
    except (OSError, ValueError, LookupError, ImportError) as error:
        print(f"Failed to export {args.run}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(export)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
