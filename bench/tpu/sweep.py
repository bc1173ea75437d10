"""Compiles what a worker would run with other step lengths and barriers: `npm run bench:tpu -- --sweep`.

Each program is one line of sweep.jsonl, beside this file, from which model/program/tuning.py has its settings. A
program that has its line is not compiled again: remove the line first.
"""

import itertools
import json
import sys
from pathlib import Path

from .models import CONFIGS
from .program import measure

FILE = Path(__file__).with_name("sweep.jsonl")
STEP_TOKENS = (2048, 4096, 8192)
CASES = (
    ("gemma-2-27b", "v6e-8"),
    ("Llama-3.1-8B", "v6e-1"),
    ("Llama-3.1-8B", "v5litepod-8"),
    ("Llama-3.1-8B", "v5p-8"),
    ("gemma-2-2b", "v6e-1"),
    ("Qwen2.5-0.5B", "v6e-1"),
    ("Qwen2.5-0.5B", "v5litepod-1"),
    ("Qwen3-4B", "v6e-1"),
    ("Qwen2.5-7B", "v6e-1"),
    ("pythia-6.9b", "v6e-1"),
    ("Qwen2.5-0.5B", "v5p-8"),
    ("gemma-2-2b", "v5p-8"),
    ("gemma-2-27b", "v5p-8"),
)
_KEYS = ("model", "accelerator", "step_tokens", "mlp_barrier")
_FIGURES = ("fits", "mesh", "shape", "tokens_per_s", "share_of_peak", "steps_in_flight", "compile_cpu_s")


def sweep(model: str | None, accelerator: str | None) -> None:
    """Compiles the missing programs of CASES, of one model or accelerator where given, and appends their lines."""
    done = {tuple(line[key] for key in _KEYS) for line in map(json.loads, FILE.read_text().splitlines())}
    for (name, kind), tokens, barrier in itertools.product(CASES, STEP_TOKENS, (True, False)):
        case = (name, kind, tokens, barrier)
        if model in (None, name) and accelerator in (None, kind) and case not in done:
            print(f"Compiling {name} for {kind}: {tokens} tokens, barrier {barrier}", file=sys.stderr, flush=True)
            found = measure(name, kind, step_tokens=tokens, mlp_barrier=barrier)
            line = dict(zip(_KEYS, case, strict=True)) | {"d_model": CONFIGS[name]["hidden_size"]}
            line |= {key: found[key] for key in _FIGURES if key in found}
            with FILE.open("a") as file:
                file.write(json.dumps(line) + "\n")
