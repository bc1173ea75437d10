"""Compiles what a worker would run with other step lengths and barriers: `npm run bench:tpu -- --sweep`.

The mesh, the rows and the outputs in flight are the worker's own. Each program is one line of sweep.jsonl, beside this
file, from which model/tuning.py has its settings. A program that has its line is not compiled again: remove the line
first.
"""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from gleaner_worker.preflight.accelerators import COMPILER_ENV

FILE = Path(__file__).with_name("sweep.jsonl")
STEP_TOKENS = (2048, 4096, 8192)
CASES = (
    ("Llama-3.1-8B", "v6e-1"),
    ("gemma-2-27b", "v6e-8"),
    ("gemma-2-2b", "v6e-1"),
    ("Qwen2.5-0.5B", "v6e-1"),
    ("Llama-3.1-8B", "v5p-8"),
    ("Qwen2.5-0.5B", "v5litepod-1"),
    ("Llama-3.1-8B", "v5litepod-8"),
)
_KEYS = ("model", "accelerator", "step_tokens", "mlp_barrier")


def sweep(model: str | None, accelerator: str | None) -> None:
    """Compiles the missing programs of CASES, of one model or accelerator where given, and appends their lines."""
    done = {tuple(line[key] for key in _KEYS) for line in read_lines()}
    for (name, kind), tokens, barrier in itertools.product(CASES, STEP_TOKENS, (True, False)):
        case = (name, kind, tokens, barrier)
        if model in (None, name) and accelerator in (None, kind) and case not in done:
            print(f"Compiling {name} for {kind}: {tokens} tokens, barrier {barrier}", file=sys.stderr, flush=True)
            with FILE.open("a") as file:
                file.write(json.dumps(_measure(*case)) + "\n")


def read_lines() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def _measure(*case) -> dict:
    """The line of a program, compiled in a process of its own."""
    command = [sys.executable, "-m", "tpu.sweep", json.dumps(case)]
    run = subprocess.run(command, env=os.environ | COMPILER_ENV, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def _compile(name: str, accelerator: str, step_tokens: int, mlp_barrier: bool) -> dict:
    from gleaner_worker.model.config import parse_config
    from gleaner_worker.preflight.estimate_program import estimate_program
    from gleaner_worker.spec import parse_spec, resolve_layers

    from .models import CONFIGS

    raw = {"model": name, "layers": "all", "dtype": "bf16", "format": "safetensors", "shard_size_gb": 1.0}
    spec, config = (
        parse_spec(raw | {"max_seq_length": 2048, "over_long": "truncate"}),
        parse_config(CONFIGS[name], name),
    )
    layers = resolve_layers(spec, config.num_layers)
    found = estimate_program(
        spec,
        config,
        layers,
        accelerator,
        lambda tuning: replace(tuning, step_tokens=step_tokens, mlp_barrier=mlp_barrier),
    )
    kept = ("fits", "mesh", "shape", "tokens_per_s", "share_of_peak", "steps_in_flight", "compile_cpu_s")
    facts = {
        "model": name,
        "d_model": config.d_model,
        "accelerator": accelerator,
        "step_tokens": step_tokens,
        "mlp_barrier": mlp_barrier,
    }
    return facts | {key: found[key] for key in kept if key in found}


if __name__ == "__main__":
    print(json.dumps(_compile(*json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # libtpu's own exit takes seconds
