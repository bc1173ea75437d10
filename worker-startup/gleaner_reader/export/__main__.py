"""Exports one layer of a run to files: python -m gleaner_reader.export RUN --to numpy --layer 12 --output FOLDER.

RUN: a folder, or gs://BUCKET/activations/RUN. Prints the export as JSON, and progress on stderr. Exit status: 0, or 1
with one line on stderr.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict

import gleaner_reader
from gleaner_reader.errors import printable

from . import npy, parts, saelens

_PROGRESS_EVERY_S = 3.0
_KINDS = {
    "numpy": lambda args: (npy.to_npy, {}),
    "safetensors": lambda args: (parts.to_safetensors, {}),
    "saelens": lambda args: (saelens.to_saelens, {"context_size": args.context_size}),
    "dictionary_learning": lambda args: (parts.to_shuffled_safetensors, {"seed": args.seed}),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_reader.export", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("run")
    parser.add_argument("--layer", type=int, required=True)
    parser.add_argument("--site", help="needed if the run has several sites")
    parser.add_argument("--to", choices=_KINDS, default="numpy")
    parser.add_argument("--dtype", choices=parts.DTYPES, default=parts.DTYPES[0])
    parser.add_argument("--context-size", type=int, default=128, help="rows of a context of SAELens")
    parser.add_argument("--seed", type=int, default=0, help="order of the rows for dictionary_learning")
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
        write, more = _KINDS[args.to](args)
        export = write(run, args.output, args.layer, args.site, dtype=args.dtype, progress=progress, **more)
    except (OSError, ValueError, LookupError, ImportError) as error:
        print(printable(f"Failed to export {args.run}: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Interrupted: run the command again to go on with the export of {args.run}", file=sys.stderr)
        return 130
    facts = {"to": args.to} | asdict(export)
    facts.pop("path", None)
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
