"""Compiles what a worker would run on TPUs that are not here, and estimates its time.

    python -m tpu [--json] [--limits] [--model M] [--accelerator A] [--layers L] [--max-seq-length N]
    python -m tpu --search [--model M] [--accelerator A]

The worker's own code chooses the mesh, the rows of a step, the settings and the steps in flight. Figures come from the
TPU compiler and the frozen cost model of gleaner_worker/preflight/cost_model.py. Exit status 1: a program does not fit,
is slower than its limit, moves large values in fp32, or holds the scores of all tokens.
"""

import argparse
import json
import os
import sys

from gleaner_worker.failures import Failure

from .models import ACCELERATORS, CONFIGS, LEAST_TOKENS_PER_S
from .program import measure
from .search import search


def main() -> int:
    parser = argparse.ArgumentParser(prog="npm run bench:tpu --", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object per program")
    parser.add_argument("--model", choices=CONFIGS)
    parser.add_argument("--accelerator", choices=sorted({name for names in ACCELERATORS.values() for name in names}))
    parser.add_argument("--layers", default="all", help="all, or a range such as 12-12 (all)")
    parser.add_argument("--max-seq-length", type=int, default=2048)
    parser.add_argument(
        "--search", action="store_true", help="compile what is missing for the fastest settings, and store them"
    )
    parser.add_argument("--limits", action="store_true", help="only the programs that have a least speed")
    args = parser.parse_args()
    if args.search:
        search(args.model, args.accelerator)
        return 0
    dense = [(model, accelerator) for model, accelerators in ACCELERATORS.items() for accelerator in accelerators]
    cases = [
        case
        for case in dict.fromkeys((*dense, *LEAST_TOKENS_PER_S))
        if args.model in (None, case[0]) and args.accelerator in (None, case[1])
        if not args.limits or case in LEAST_TOKENS_PER_S
    ]
    if not cases:
        parser.error(f"{args.model} is measured on {', '.join(ACCELERATORS[args.model])}")
    is_bad = False
    for number, case in enumerate(cases, 1):
        name = " ".join(map(str, case))
        print(f"{number} of {len(cases)}: {name}", file=sys.stderr, flush=True)
        try:
            found = measure(*case[:2], args.layers, args.max_seq_length, *case[2:])
        except Failure as failure:
            parser.error(failure.reason)
        least = LEAST_TOKENS_PER_S.get(case) if (args.layers, args.max_seq_length) == ("all", 2048) else None
        if least and found.get("tokens_per_s", least) < least:
            found["problems"].append(f"{found['tokens_per_s']:,} tokens/s, at least {least:,} are expected")
        print(json.dumps(found) if args.json else table_row(found), flush=True)
        for problem in found["problems"]:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
        is_bad |= bool(found["problems"])
    return int(is_bad)


def table_row(found: dict) -> str:
    name = f"{found['model']:13} {found['accelerator']:12}"
    if not found["fits"]:
        return f"{name} does not fit"
    used = sum(found["hbm_bytes"].values()) / 1e9
    return (
        f"{name} {found['mesh']:4} {found['shape']:8} "
        f"{found['estimated_ms']:9.2f} ms {found['tokens_per_s']:9,} tokens/s {found['share_of_peak']:5.0%} of peak  "
        f"{used:5.2f} GB, {found['steps_in_flight']} steps in flight  {found['compile_cpu_s']:5.1f} CPU-s"
    )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # libtpu's own exit takes seconds
