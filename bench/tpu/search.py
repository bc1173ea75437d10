"""Searches the fastest settings of a program with the TPU compiler: `npm run bench:tpu -- --search`.

One setting after another takes the value with which the program is the fastest; a reason would be wrong, because XLA
fuses products with their neighbours as it likes. Each compiled program is one line of search.jsonl, beside this file,
and is not compiled again for the same compiler. The fastest settings of each case are in tuning.jsonl of the worker.
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.model.program import tuning as worker
from gleaner_worker.model.program.tuning import TPU, TRIED
from gleaner_worker.preflight.accelerators import ACCELERATORS

from .models import CONFIGS, SEARCHED
from .program import measure

FILE = Path(__file__).with_name("search.jsonl")
TABLE = Path(worker.__file__).with_name("tuning.jsonl")
VALUES: dict[str, tuple] = dict.fromkeys(TRIED, (False, True)) | {"step_tokens": (2048, 4096, 8192)}
KINDS = {"v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite", "tpu7x": "TPU7x"}  # of JAX
_OF_DENSE = ("neurons_barrier", "mlp_barrier")
_GAIN = 1.01  # a smaller one is no reason for another program
_FIGURES = ("fits", "mesh", "shape", "tokens_per_s", "share_of_peak", "steps_in_flight", "compile_cpu_s", "problems")


def _compiler() -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in ("jax", "libtpu"))


def search(model: str | None, accelerator: str | None) -> None:
    """Compiles what is missing of the cases, of one model or accelerator where given, and writes the table.

    One setting for all cases after another, so that a search that is stopped has left out the same of each.
    """
    cases = [case for case in SEARCHED if model in (None, case[0]) and accelerator in (None, case[1])]
    for end in range(1, len(TRIED) + 1):
        for case in cases:
            fastest(case[0], partial(_compiled, *case), TRIED[:end])
            TABLE.write_text("".join(f"{json.dumps(entry)}\n" for entry in table(_compiler())))


def fastest(model: str, compiled: Callable, tried: Sequence[str] = TRIED) -> tuple[dict[str, Any], list[str]]:
    """The settings that differ from the usual ones, and those that were not searched. compiled: gives the figures of a
    program by its settings, or None."""
    usual = TPU.tried
    is_mixture = bool(parse_config(CONFIGS[model], model).experts)
    best, found, missing = usual, compiled(usual), []
    for name in tried:
        if is_mixture and name in _OF_DENSE:
            continue
        for value in VALUES[name]:
            settings = best | {name: value}
            figures = found if settings == best else compiled(settings)
            if figures is None or found is None:
                missing.append(name)
                break
            # Devices that hold one step wait for each copy to the host. A problem may be a value of another type; lines
            # of an earlier benchmark, which looked for no such value, have none.
            is_usable = figures["fits"] and figures["steps_in_flight"] > 1 and not figures.get("problems")
            if is_usable and figures["tokens_per_s"] > _GAIN * found["tokens_per_s"]:
                best, found = settings, figures
    return {name: value for name, value in best.items() if value != usual[name]}, missing


def table(compiler: str) -> list[dict]:
    """The entries of tuning.jsonl, from the lines of search.jsonl by that compiler."""
    lines, entries = _lines(), []
    for model, accelerator in SEARCHED:
        known = {key[3:]: line for key, line in lines.items() if key[:3] == (compiler, model, accelerator)}
        if not known:
            continue
        settings, missing = fastest(model, lambda each, known=known: known.get(_values(each)))
        config, kind = parse_config(CONFIGS[model], model), KINDS[ACCELERATORS[accelerator][0]]
        sizes = {"d_model": config.d_model, "d_ff": config.d_ff, "mixture": bool(config.experts)}
        entry = {"compiler": compiler, "kind": kind, "model": model} | sizes
        entries.append(entry | {"settings": settings, "not_searched": missing})
    return entries


def _compiled(model: str, accelerator: str, settings: dict[str, Any]) -> dict:
    if known := _lines().get((_compiler(), model, accelerator, *_values(settings))):
        return known
    shown = " ".join(f"{name}={value}" for name, value in settings.items())
    print(f"Compiling {model} for {accelerator}: {shown}", file=sys.stderr, flush=True)
    found = measure(model, accelerator, **settings)
    line = {"compiler": _compiler(), "model": model, "accelerator": accelerator} | settings
    line |= {name: found[name] for name in _FIGURES if name in found}
    with FILE.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def _lines() -> dict[tuple, dict]:
    """compiler, model, accelerator and settings -> line of search.jsonl"""
    lines = map(json.loads, FILE.read_text().splitlines())
    return {(line["compiler"], line["model"], line["accelerator"], *_values(line)): line for line in lines}


def _values(settings: dict[str, Any]) -> tuple:
    return tuple(settings[name] for name in TRIED)
