"""Exports layers of a run to files: python -m gleaner_reader.export RUN --to numpy --layer 12 --output FOLDER.

RUN: a folder, or gs://BUCKET/activations/RUN. Prints the export as JSON, and progress on stderr. Exit status: 0, or 1
with one line on stderr.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..format.errors import printable
from ..run.opening import open as open_run_or_shard
from ..run.run import Run
from . import features, hub, npy, pairs, parts, saelens, speculators

_PROGRESS_EVERY_S = 3.0
_KINDS = ("numpy", "safetensors", "saelens", "dictionary_learning", "pairs", "speculators", "delphi", "features", "hub")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gleaner_reader.export", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("run")
    parser.add_argument("--layer", type=int, help="needed for all but speculators and hub")
    parser.add_argument(
        "--layers", type=int, nargs="+", help="as speculators counts them (default: all that are stored)"
    )
    parser.add_argument("--site", help="needed if the run has several; for delphi and features the name in the spec")
    parser.add_argument("--ids", type=int, nargs="+", help="numbers for --to features (default: all)")
    parser.add_argument("--to", choices=_KINDS, default="numpy")
    parser.add_argument("--dtype", choices=parts.DTYPES, default=parts.DTYPES[0])
    parser.add_argument("--context-size", type=int, default=128, help="rows of a context of SAELens or delphi")
    parser.add_argument("--seed", type=int, default=0, help="order of the rows for dictionary_learning")
    parser.add_argument("--window", type=int, default=64, help="tokens of the text of a pair")
    parser.add_argument(
        "--tokenizer", help="tokenizer.json, its folder, or a model of the hub (default: the run's model)"
    )
    parser.add_argument("--output", help="folder that does not exist yet, needed for all but hub")
    parser.add_argument("--repo", help="dataset of the hub, such as me/my-run")
    parser.add_argument("--public", action="store_true", help="create a dataset that everybody can read")
    args = parser.parse_args()
    reported_at = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at > _PROGRESS_EVERY_S:
            reported_at = time.monotonic()
            what = "bytes" if args.to == "hub" else "rows"
            print(f"{done:,} of {total:,} {what}", file=sys.stderr, flush=True)

    try:
        run = open_run_or_shard(args.run)
        if not isinstance(run, Run):
            raise ValueError(f"{args.run} is one shard: name the folder of its run")
        _require_whole(run)
        export = _export(run, args, progress)
    except (OSError, ValueError, LookupError, ImportError) as error:
        text = str(error)
        print(
            printable(text if text.startswith("Failed to ") else f"Failed to export {args.run}: {text}"),
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print(f"Interrupted: run the command again to go on with the export of {args.run}", file=sys.stderr)
        return 130
    facts = {"to": args.to} | asdict(export)
    facts.pop("path", None)
    print(json.dumps(facts))
    return 0


def _require_whole(run: Run) -> None:
    """Raises ValueError for a completed run that has lost shards. Says what an unfinished run has not."""
    problems = "; ".join(run.problems)
    if problems and isinstance((run.manifest or {}).get("result"), dict):
        raise ValueError(f"it has lost shards: {problems}; `gleaner rebuild` makes them again")
    if problems:
        print(printable(f"note: {run.url} is exported as far as it is stored: {problems}"), file=sys.stderr, flush=True)


def _export(run: Run, args: argparse.Namespace, progress: Callable[[int, int], None]):
    if args.to == "hub":
        if args.repo is None:
            raise ValueError("--to hub needs --repo, such as me/my-run")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        return hub.to_hub(run, args.repo, private=not args.public, progress=progress)
    if args.output is None:
        raise ValueError(f"--to {args.to} writes a folder: pass --output")
    if args.to == "speculators":
        return speculators.to_speculators(run, args.output, args.layers, progress=progress)
    if args.layer is None:
        raise ValueError(f"--to {args.to} exports one layer: pass --layer")
    if args.to == "delphi":
        options = {"context_size": args.context_size, "progress": progress}
        return features.to_delphi(run, args.output, args.layer, args.site, **options)
    if args.to == "features":
        options = {"tokenizer": _tokenizer(run, args.tokenizer), "progress": progress}
        return features.to_feature_json(run, args.output, args.layer, args.ids, args.site, **options)
    if run.sites and (args.site is None and len(run.sites) > 1 or args.site not in (None, *run.sites)):
        raise ValueError(f"it has the sites {', '.join(run.sites)}: pass one of them, such as --site {run.sites[0]}")
    write, more = _writer(run, args)
    return write(run, args.output, args.layer, args.site, dtype=args.dtype, progress=progress, **more)


def _tokenizer(run: Run, where: str | None):
    """None, and a note, if the model of the run cannot be reached: token ids then take the place of texts."""
    try:
        return pairs.tokenizer_of(run, where)
    except (OSError, ValueError, ImportError) as error:
        if where is not None:
            raise
        print(printable(f"note: token ids in place of texts, because {error}"), file=sys.stderr, flush=True)
        return None


def _writer(run: Run, args: argparse.Namespace) -> tuple[Callable[..., Any], dict[str, Any]]:
    match args.to:
        case "safetensors":
            return parts.to_safetensors, {}
        case "saelens":
            return saelens.to_saelens, {"context_size": args.context_size}
        case "dictionary_learning":
            return parts.to_shuffled_safetensors, {"seed": args.seed}
        case "pairs":
            return pairs.to_pairs, {"tokenizer": pairs.tokenizer_of(run, args.tokenizer), "window": args.window}
        case _:
            return npy.to_npy, {}


if __name__ == "__main__":
    sys.exit(main())
