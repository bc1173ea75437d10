"""Searches the fastest settings of a program with the TPU compiler: `npm run bench:tpu -- --search`.

One setting after another takes the value with which the program is the fastest; a reason would be wrong, because XLA
fuses products with their neighbours as it likes. Each compiled program is one line of search.jsonl, beside this file,
and is not compiled again for the same compiler. The fastest settings of each case are in tuning.json of the worker.
"""

import importlib.metadata
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.model.program import tuning as worker
from gleaner_worker.model.program.tuning import TPU, TRIED
from gleaner_worker.preflight.accelerators import ACCELERATORS

from .models import CONFIGS, SEARCHED
from .program import measure

FILE = Path(__file__).with_name("search.jsonl")
TABLE = Path(worker.__file__).with_name("tuning.json")
VALUES: dict[str, tuple] = dict.fromkeys(TRIED, (False, True)) | {"step_tokens": (2048, 4096, 8192)}
KINDS = {"v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite", "tpu7x": "TPU7x"}  # of JAX
_OF_DENSE = ("neurons_barrier", "mlp_barrier")
_GAIN = 1.01  # a smaller one is no reason for another program
_FIGURES = ("fits", "mesh", "shape", "tokens_per_s", "share_of_peak", "steps_in_flight", "products", "compile_cpu_s")


def _compiler() -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in ("jax", "libtpu"))


def search(model: str | None, accelerator: str | None) -> None:
    """Compiles what is missing of the cases, of one model or accelerator where given, and writes the table."""
    cases = [case for case in SEARCHED if model in (None, case[0]) and accelerator in (None, case[1])]
    for number, case in enumerate(cases, 1):
        best = fastest(*case, lambda settings, case=case: _compiled(*case, settings))
        print(f"{number} of {len(cases)}: {' '.join(case)}: {best}", file=sys.stderr, flush=True)
    TABLE.write_text(json.dumps(table(_compiler()), indent=2) + "\n")


def fastest(model: str, accelerator: str, compiled) -> dict[str, Any] | None:
    """The settings that differ from the usual ones; None where `compiled` has not every figure. compiled: gives the
    figures of a program with some settings, or None."""
    usual = {name: asdict(TPU)[name] for name in TRIED}
    is_mixture = bool(parse_config(CONFIGS[model], model).experts)
    best, found = usual, compiled(usual)
    for name in TRIED:
        for value in VALUES[name]:
            if value == best[name] or (is_mixture and name in _OF_DENSE):
                continue
            settings = best | {name: value}
            figures = compiled(settings)
            if figures is None or found is None:
                return None
            # Devices that hold one step wait for each copy to the host. Other types of products would round otherwise.
            is_usable = figures["fits"] and figures["steps_in_flight"] > 1 and figures["products"] == found["products"]
            if is_usable and figures["tokens_per_s"] > _GAIN * found["tokens_per_s"]:
                best, found = settings, figures
    return {name: value for name, value in best.items() if value != usual[name]}


def table(compiler: str) -> dict:
    """tuning.json, from the lines of search.jsonl by that compiler."""
    lines = _lines()
    kinds: dict[str, list[dict]] = {}
    for model, accelerator in SEARCHED:
        settings = fastest(
            model, accelerator, lambda each, case=(model, accelerator): lines.get(_key(compiler, *case, each))
        )
        if settings is None:
            continue
        config, kind = parse_config(CONFIGS[model], model), KINDS[ACCELERATORS[accelerator][0]]
        entry = {"model": model, "d_model": config.d_model, "d_ff": config.d_ff, "mixture": bool(config.experts)}
        kinds.setdefault(kind, []).append(entry | {"settings": settings})
    return {"compiler": compiler, "kinds": kinds}


def _compiled(model: str, accelerator: str, settings: dict[str, Any]) -> dict:
    key, lines = _key(_compiler(), model, accelerator, settings), _lines()
    if key in lines:
        return lines[key]
    shown = " ".join(f"{name}={value}" for name, value in settings.items())
    print(f"Compiling {model} for {accelerator}: {shown}", file=sys.stderr, flush=True)
    found = measure(model, accelerator, **settings)
    line = {"compiler": _compiler(), "model": model, "accelerator": accelerator} | settings
    line |= {name: found[name] for name in _FIGURES if name in found}
    with FILE.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def _key(compiler: str, model: str, accelerator: str, settings: dict[str, Any]) -> tuple:
    return compiler, model, accelerator, *(settings[name] for name in TRIED)


def _lines() -> dict[tuple, dict]:
    lines = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
    return {(line["compiler"], *(line[name] for name in ("model", "accelerator", *TRIED))): line for line in lines}
