"""Verifies a run by its files alone: gleaner-reader verify PATH.

PATH: a folder, or gs://BUCKET/activations/RUN. Exit status: 0 for a run whose shards are complete and have the stated
checksums, 1 for another one.
"""

import argparse
import sys

from gleaner_reader.errors import printable
from gleaner_reader.files import open_folder
from gleaner_reader.verify import Verification, verify


def main(options: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gleaner-reader", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("verify", help="read every shard of a run, and compare it with its checksums")
    command.add_argument("path", help="folder of a run, or gs://BUCKET/activations/RUN")
    command.add_argument("--digest", help="SHA-256 that its publisher states; another one is a problem")
    args = parser.parse_args(options)
    try:
        found = verify(open_folder(args.path.rstrip("/")))
    except (OSError, ValueError, ImportError) as error:
        print(printable(f"Failed to verify {args.path}: {error}"), file=sys.stderr)
        return 1
    problems = list(found.problems)
    if args.digest and args.digest != found.digest:
        problems.append(f"the digest is {found.digest}, and its publisher states {args.digest}")
    for line in _lines(found, problems):
        print(printable(line))
    return 1 if problems else 0


def _lines(found: Verification, problems: list[str]) -> list[str]:
    return [
        *(f"problem: {problem}" for problem in problems),
        f"{found.shards:,} shards, {found.size_bytes:,} bytes",
        f"digest: {found.digest}",
        f"{'NOT verified' if problems else 'verified'}: {found.run}",
    ]


if __name__ == "__main__":
    sys.exit(main())
