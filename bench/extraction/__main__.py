"""`python -m extraction [NAME...] [--quick] [--rounds N] [--json FILE]` runs each bench in a process of its own."""

import argparse
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile

from . import machine
from .timing import Figure, Report
from .workplace import Workplace

NAMES = ("forward", "saved", "seed", "libraries", "depth", "read", "upload", "tls", "memory", "reader")
# No bench needs a network, and its output has no progress bar.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "JAX_PLATFORMS": "cpu",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="npm run bench:extraction --", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benches to run, of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="use a tiny model, to test the benches")
    parser.add_argument("--rounds", type=int, help="largest number of rounds")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # for the process of one bench
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if args.folder:
        _write(args.json, [_run(args.names[0], Workplace(args.folder, args.quick, args.rounds))])
        return 0
    for name, value in machine.facts().items():
        print(f"{name:10} {value}")
    reports, failed = [], []
    with tempfile.TemporaryDirectory(prefix="gleaner-bench-") as folder:
        for name in args.names or NAMES:
            print(f"\n== {name}", flush=True)
            report = _in_own_process(name, folder, args)
            if report is None:
                failed.append(name)
                continue
            reports.append(report)
            _show(report)
    if args.json:
        _write(args.json, reports)
    if failed:
        print(f"\nFailed to run: {', '.join(failed)}; see the messages above")
    return 1 if failed else 0


def _run(name: str, place: Workplace) -> Report:
    report = importlib.import_module(f".{name}", __package__).run(place)
    if not place.is_quick:
        return report
    # The speed of a tiny model has no target.
    return dataclasses.replace(report, figures=[dataclasses.replace(f, target=None) for f in report.figures])


def _in_own_process(name: str, folder: str, args: argparse.Namespace) -> Report | None:
    """The report, or None for a failure. A process of its own keeps one bench's threads and memory from the next."""
    result = os.path.join(folder, f"{name}.json")
    command = [sys.executable, "-m", __package__, name, "--folder", folder, "--json", result]
    command += ["--quick"] if args.quick else []
    command += ["--rounds", str(args.rounds)] if args.rounds else []
    if (
        subprocess.run(
            command, env=os.environ | _ENVIRONMENT | {"HF_HOME": os.path.join(folder, f"{name}-home")}
        ).returncode
        != 0
    ):
        return None
    with open(result, encoding="utf-8") as file:
        (raw,) = json.load(file)["reports"]
    return Report(**raw | {"figures": [Figure(**figure) for figure in raw["figures"]]})


def _write(path: str, reports: list[Report]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine.facts(), "reports": [dataclasses.asdict(r) for r in reports]}, file, indent=1)
        file.write("\n")


def _show(report: Report) -> None:
    print(report.claim)
    for figure in report.figures:
        print(f"  {figure}")
    for note in report.notes:
        print(f"  {note}")


if __name__ == "__main__":
    sys.exit(main())
