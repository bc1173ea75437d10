"""Time by the deepest requested layer: no later block is computed, so time grows in proportion."""

import numpy as np

from .job import compute, load_forward, samples_of
from .timing import Figure, Report, take_turns
from .workplace import Workplace

CLAIM = "time by the deepest requested layer: proportional to the blocks, plus the embedding"


def run(place: Workplace) -> Report:
    report = Report(CLAIM)
    depths = sorted({0, place.layers // 4, place.layers // 2, 3 * place.layers // 4, place.layers - 1})
    samples = samples_of(place.token_rows(*((16, 128) if place.is_quick else (4, 512))))
    models = {depth: load_forward(place, depth) for depth in depths}
    sides = {str(depth): (lambda model=model: compute(model, samples)) for depth, model in models.items()}
    seconds = {int(depth): min(times) for depth, times in take_turns(sides, place.rounds(7)).items()}
    blocks, times = np.array(depths) + 1, np.array([seconds[depth] for depth in depths])
    per_block, fixed = np.polyfit(blocks, times, 1)
    misfit = times - (per_block * blocks + fixed)
    fit = 1 - misfit.var() / times.var()
    line = f"{per_block * 1e3:.1f} ms a block + {fixed * 1e3:.1f} ms"
    report.figures.append(Figure("R2 of the line through the best of each depth", fit, 0.99, detail=line, unit=""))
    whole = seconds[depths[-1]]
    for depth in depths[:-1]:
        report.figures.append(
            Figure(
                f"layer {depth}: its time over its share of the blocks' ({depth + 1} of {place.layers})",
                seconds[depth] / whole / ((depth + 1) / place.layers),
                detail=f"{seconds[depth] * 1e3:.0f} ms of {whole * 1e3:.0f} ms",
                unit="",
            )
        )
    return report
