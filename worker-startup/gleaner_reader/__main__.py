"""Verifies a run by its files alone: gleaner-reader verify PATH. Converts autoencoders: gleaner-reader convert-sae.

PATH: a folder, or gs://BUCKET/activations/RUN. Exit status: 0 for a run whose shards are complete and have the digest
of --digest, 1 for another one. Without --digest the files are compared with each other: the run is unanchored.
"""

import argparse
import sys

from gleaner_reader.export.convert_sae import convert_sae
from gleaner_reader.format.errors import printable
from gleaner_reader.format.files import open_folder
from gleaner_reader.run.verify import Verification, verify

_UNANCHORED = (
    "Its files agree with each other, and whoever made them may have forged all of them. Compare the digest with that "
    "of the publisher, by --digest DIGEST; --unanchored accepts the run without one."
)


def main(options: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gleaner-reader", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("verify", help="read every shard of a run, and compare it with its checksums")
    command.add_argument("path", help="folder of a run, or gs://BUCKET/activations/RUN")
    command.add_argument("--digest", help="digest that its publisher states; another one is a problem")
    command.add_argument("--unanchored", action="store_true", help="accept a run without --digest, with exit status 0")
    command = commands.add_parser("convert-sae", help="write an autoencoder of Gemma Scope 1 or Qwen-Scope for SAELens")
    command.add_argument("source", help="params.npz, layerN.sae.pt, or a folder of them")
    command.add_argument("folder", help="folder that does not exist yet")
    command.add_argument("--hook-name", help="such as blocks.12.hook_resid_post (default: from the path)")
    command.add_argument("--k", type=int, help="active features of a token, of Qwen-Scope (default: from the path)")
    args = parser.parse_args(options)
    try:
        if "source" in args:
            print(*map(printable, convert_sae(args.source, args.folder, args.hook_name, args.k)), sep="\n")
            return 0
        found = verify(open_folder(args.path.rstrip("/")))
    except (OSError, ValueError, ImportError) as error:
        what = f"convert {args.source}" if "source" in args else f"verify {args.path}"
        print(printable(f"Failed to {what}: {error}"), file=sys.stderr)
        return 1
    problems = list(found.problems)
    if args.digest and args.digest != found.digest:
        problems.append(f"the digest is {found.digest}, and its publisher states {args.digest}")
    verdict = "NOT verified" if problems else "verified" if args.digest else "unanchored"
    for line in _lines(found, problems, verdict):
        print(printable(line))
    return 0 if verdict == "verified" or (verdict == "unanchored" and args.unanchored) else 1


def _lines(found: Verification, problems: list[str], verdict: str) -> list[str]:
    files = ", ".join(found.uncovered[:3]) + (f" and {len(found.uncovered) - 3:,} more" * (len(found.uncovered) > 3))
    return [
        *(f"problem: {problem}" for problem in problems),
        f"{found.shards:,} shards, {found.size_bytes:,} bytes",
        *([f"not covered by the digest: {files}"] if files else []),
        f"digest: {found.digest}",
        f"{verdict}: {found.run}",
        *([_UNANCHORED] if verdict == "unanchored" else []),
    ]


if __name__ == "__main__":
    sys.exit(main())
