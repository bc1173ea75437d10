"""The program of a worker, compiled for an accelerator that is not here."""

from dataclasses import replace

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.reductions import TOP_GROUP, Encoder, Reduction
from gleaner_worker.preflight.cost_model import (
    cost_of,
    expert_buffers,
    products_of_other_types,
    square_buffers,
    uncounted,
)
from gleaner_worker.preflight.estimate_program import estimate_program
from gleaner_worker.spec.read_spec import parse_spec
from gleaner_worker.spec.spec import capture_of, resolve_layers

from .models import CONFIGS

_LARGE_BYTES = 64 << 10  # of a collective; OLMo's norms add up a number for each token in fp32
_SPEC = {"dtype": "bf16", "format": "safetensors", "shard_size_gb": 1.0, "over_long": "truncate"}


def measure(
    model: str,
    accelerator: str,
    layers: str = "all",
    max_seq_length: int = 2048,
    features: tuple[int, int] | None = None,
    **settings: int | bool,
) -> dict:
    """The figures of `resid_post` of all tokens, and the problems that no program may have.

    features: the width of an encoder at each layer and the features that are stored, in place of `resid_post`.
    settings: fields of Tuning, in place of those of the accelerator.
    """
    sites = {"sites": []} if features else {}
    spec = parse_spec(_SPEC | sites | {"model": model, "layers": layers, "max_seq_length": max_seq_length})
    config, texts = parse_config(CONFIGS[model], model), list[str]()
    chosen, reductions = resolve_layers(spec, config.num_layers), tuple[Reduction, ...]()
    if features:
        encoder = Encoder(features[0], "jumprelu", vectors=("b", "theta"))
        reductions = (Reduction("features", "resid_post", chosen, config.d_model, features[1], "bf16", encoder),)
    found = estimate_program(
        spec,
        capture_of(spec, config, chosen, reductions),
        accelerator,
        tuned=lambda tuning: replace(tuning, **settings),
        see=texts.append,
    )
    if not found["fits"]:
        return {"model": model} | found | {"problems": [found["reason"]]}
    ways, tokens = (int(found[key].split("x")[1]) for key in ("mesh", "shape"))
    problems = [
        f"{each.kind} moves {each.size_bytes:,} bytes of fp32"
        for each in cost_of(texts[0]).collectives
        if "f32" in each.dtypes and each.size_bytes > _LARGE_BYTES
    ]
    # Where weights or their parts are as wide as the row is long, a square shape proves nothing.
    groups = [features[0] // TOP_GROUP // ways] if features else []
    if tokens not in (config.d_model, config.d_model // ways, *groups):
        problems += [f"{buffer} holds the scores of all tokens" for buffer in square_buffers(texts[0], tokens)]
    problems += [f"{buffer} is a copy of experts" for buffer in expert_buffers(texts[0], config, ways)]
    problems += [f"the product {each} is not of bf16, summed in fp32" for each in products_of_other_types(texts[0])]
    problems += [f"the compiler has no time for {each}" for each in uncounted(texts[0])]
    return {"model": model} | found | {"problems": problems}
