"""`python -m extraction [NAME...] [--quick] [--rounds N]` runs each bench in a process of its own."""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile

from . import machine
from .timing import Report
from .workplace import Workplace

NAMES = ("saved", "seed", "libraries", "depth", "read", "upload", "tls", "reader")
# No bench needs a network, and its output has no progress bar.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "true",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="npm run bench:extraction --", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benches to run, of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="use a tiny model, to test the benches")
    parser.add_argument("--rounds", type=int, help="largest number of rounds")
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # for the process of one bench
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if args.folder:
        bench = importlib.import_module(f".{args.names[0]}", __package__)
        _show(bench.run(Workplace(args.folder, args.quick, args.rounds)))
        return 0
    for name, value in machine.facts().items():
        print(f"{name:10} {value}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="gleaner-bench-") as folder:
        for name in args.names or NAMES:
            print(f"\n== {name}", flush=True)
            if not _succeeds_in_own_process(name, folder, args):
                failed.append(name)
    if failed:
        print(f"\nFailed to run: {', '.join(failed)}; see the messages above")
    return 1 if failed else 0


def _succeeds_in_own_process(name: str, folder: str, args: argparse.Namespace) -> bool:
    """Runs the bench, which prints its report. Its own process keeps its threads and memory from the next bench."""
    command = [sys.executable, "-m", __package__, name, "--folder", folder]
    command += ["--quick"] if args.quick else []
    command += ["--rounds", str(args.rounds)] if args.rounds else []
    env = os.environ | _ENVIRONMENT | {"HF_HOME": os.path.join(folder, f"{name}-home")}
    return subprocess.run(command, env=env).returncode == 0


def _show(report: Report) -> None:
    print(report.claim)
    for figure in report.figures:
        print(f"  {figure}")
    for note in report.notes:
        print(f"  {note}")


if __name__ == "__main__":
    sys.exit(main())
