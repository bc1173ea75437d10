"""Compiles the worker's program for absent TPUs, and estimates its time.

    python -m tpu [--json] [--model M] [--accelerator A] [--shape RxT]
    python -m tpu --sweep [--model M] [--accelerator A]

Figures come from the TPU compiler and the frozen cost model of gleaner_worker/preflight/cost_model.py; no TPU runs.
Exit status 1: a time is larger than its limit, a large collective is fp32, a buffer holds the scores of all tokens, or
a program does not fit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gleaner_worker.model.config import parse_config
from gleaner_worker.preflight.accelerators import ACCELERATORS, COMPILER_ENV, device_of
from gleaner_worker.preflight.cost_model import cost_of, square_buffers
from gleaner_worker.preflight.operations import speed_of

from .models import CONFIGS, LIMITS_MS, MESHES, shapes_of
from .sweep import sweep

LARGE_BYTES = 64 << 10  # of a collective; OLMo's norms add up a number for each token in fp32
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="npm run bench:tpu --", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object per program")
    parser.add_argument("--model", choices=CONFIGS)
    parser.add_argument("--accelerator", choices=sorted({name for meshes in MESHES.values() for name in meshes}))
    parser.add_argument("--shape", help="rows x tokens of one device, such as 1x2048")
    parser.add_argument("--sweep", action="store_true", help="add the missing programs of sweep.py to sweep.jsonl")
    args = parser.parse_args()
    if args.sweep:
        sweep(args.model, args.accelerator)
        return 0
    wanted = [
        (model, accelerator, f"{rows}x{tokens}")
        for model in CONFIGS
        for accelerator in MESHES[model]
        for rows, tokens in shapes_of(model)
    ]
    wanted = [
        case
        for case in wanted
        if args.model in (None, case[0]) and args.accelerator in (None, case[1]) and args.shape in (None, case[2])
    ]
    if not wanted:
        parser.error("no program has that model, accelerator and shape")
    problems = []
    for number, case in enumerate(wanted, 1):
        print(f"{number} of {len(wanted)}: {' '.join(case)}", file=sys.stderr, flush=True)
        found = measure(*case)
        problems += problems_of(case, found)
        print(json.dumps(found) if args.json else table_row(found), flush=True)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def measure(model: str, accelerator: str, shape: str) -> dict:
    """The figures of one program, compiled in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="gleaner-bench-tpu-") as folder:
        out = os.path.join(folder, "program")
        done = subprocess.run(
            [
                sys.executable,
                str(HERE / "compile_program.py"),
                model,
                accelerator,
                ACCELERATORS[accelerator][1],
                shape,
                out,
            ],
            env=os.environ | COMPILER_ENV | {"PYTHONPATH": str(ROOT / "worker-startup")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"Failed to compile {model} {shape} for {accelerator}:\n{done.stderr[-3000:]}")
        text = Path(f"{out}.txt").read_text()
        facts = json.loads(Path(f"{out}.json").read_text())
    config, device, cost = parse_config(CONFIGS[model], model), device_of(accelerator), cost_of(text)
    data, ways = MESHES[model][accelerator]
    rows, tokens = map(int, shape.split("x"))
    used = sum(facts["hbm_bytes"].values())
    return {
        "model": model,
        "accelerator": accelerator,
        "mesh": f"{data}x{ways}",
        "shape": shape,
        **speed_of(cost.milliseconds(device), rows * data, tokens, config, config.num_layers, device, data * ways),
        **facts,
        "fits": used <= device.hbm_bytes,
        "collectives": [
            {"kind": each.kind, "dtypes": list(each.dtypes), "bytes": each.size_bytes, "calls": each.calls}
            for each in cost.collectives
        ],
        # null: heads, or a stored part of D, are as wide as the row is long, so a square shape proves nothing.
        "square_buffers": None
        if tokens in (config.head_dim, config.d_model, config.d_model // ways)
        else square_buffers(text, tokens),
    }


def problems_of(case: tuple[str, str, str], found: dict) -> list[str]:
    name, problems = " ".join(case), []
    limit_ms = LIMITS_MS.get(case)
    if limit_ms and found["estimated_ms"] > limit_ms:
        problems.append(f"{name}: {found['estimated_ms']} ms, the limit is {limit_ms} ms")
    if any("f32" in each["dtypes"] and each["bytes"] > LARGE_BYTES for each in found["collectives"]):
        problems.append(f"{name}: a collective moves fp32")
    if found["square_buffers"]:
        problems.append(f"{name}: buffers of all tokens by all tokens: {', '.join(found['square_buffers'])}")
    if not found["fits"]:
        problems.append(f"{name}: it does not fit into {device_of(case[1]).hbm_bytes / 1e9:.1f} GB")
    return problems


def table_row(found: dict) -> str:
    used = sum(found["hbm_bytes"].values()) / 1e9
    return (
        f"{found['model']:13} {found['accelerator']:11} {found['mesh']:4} {found['shape']:8} "
        f"{found['estimated_ms']:9.2f} ms {found['tokens_per_s']:9,} tokens/s {found['share_of_peak']:5.0%} of peak  "
        f"{used:5.2f} GB{'' if found['fits'] else ' (does not fit)'}  {found['compile_cpu_s']:5.1f} CPU-s"
    )


if __name__ == "__main__":
    sys.exit(main())
