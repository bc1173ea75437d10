"""The forward pass alone, without logits, compared with transformers: the same weights, batches and lengths."""

import os
from functools import partial

import torch
import transformers

from .job import compute, load_forward, samples_of
from .timing import Report, speed_up, take_turns
from .workplace import Workplace

CLAIM = "forward only against transformers, its faster attention (eager or sdpa)"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for dtype in _DTYPES:
        ours = load_forward(place, dtype=dtype, compute_dtype=dtype)
        theirs = {attention: _theirs(place, dtype, attention) for attention in ("eager", "sdpa")}
        for height, width in ((32, 64),) if place.is_quick else ((4, 512), (16, 128), (1, 2048)):
            ids = place.token_rows(height, width)
            samples, tensor = samples_of(ids), torch.tensor(ids, dtype=torch.long)
            sides = {name: partial(_forward, model, tensor) for name, model in theirs.items()}
            once = take_turns(sides, 1)
            faster = min(once, key=lambda name: once[name][0])
            sides = {"ours": partial(compute, ours, samples), faster: sides[faster]}
            seconds = take_turns(sides, place.rounds(3 if dtype == "fp32" else 7))
            rate = ", ".join(f"{name} {ids.size / min(s):.0f}" for name, s in (once | seconds).items())
            report.figures.append(
                speed_up(
                    f"{dtype}, {height} x {width} tokens, over {faster}",
                    seconds[faster],
                    seconds["ours"],
                    1.2 if dtype == "fp32" else None,
                    f"tok/s: {rate}",
                )
            )
        del ours, theirs
    return report


def _theirs(place: Workplace, dtype: str, attention: str) -> torch.nn.Module:
    """The model without its head, which the residual stream does not need."""
    return transformers.AutoModel.from_pretrained(
        place.model, dtype=_DTYPES[dtype], attn_implementation=attention, use_cache=False
    ).eval()


def _forward(model: torch.nn.Module, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        model(ids)
