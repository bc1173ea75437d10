"""Compiles the program of a small model with the TPU compiler, so that no program that the compiler refuses is merged.

For a mesh of 4 x 2 v5e chips, and with the argument `long` for one chip, for every family, and with every site: each
fits, no large collective but that of logits moves fp32, and no buffer holds the scores of all tokens. Prints every
problem, and exits with 1 for any.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "worker-startup"))
from gleaner_worker.preflight.accelerators import device_of, devices_of  # isort: skip

import numpy as np
from jax.sharding import Mesh

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.reductions import Encoder, Reduction
from gleaner_worker.architecture.sites import SITES, TABLE, Capture
from gleaner_worker.model.program.decoder import LOGIT_TOKENS
from gleaner_worker.model.program.program import StepShape, compile_rows
from gleaner_worker.model.program.tuning import tuning_of
from gleaner_worker.model.tiny import FAMILY_CONFIGS, family_config
from gleaner_worker.model.weights.mesh import Layout
from gleaner_worker.model.weights.weights import parameter_shapes, reduction_shapes
from gleaner_worker.preflight.cost_model import cost_of, expert_buffers, square_buffers, uncounted

# Before a merge: two kinds of layers, a soft cap, and key/value heads that two chips divide between them.
FIRST = "gemma2"
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
# Where all but the number of experts would be padded, as in gpt-oss-120b, that number is the usual last axis in memory.
MANY_EXPERTS = SIZES | {"num_local_experts": 128, "hidden_size": 320, "intermediate_size": 720}
ROW_TOKENS = 1024
_LARGE_BYTES = 64 << 10  # of a collective; OLMo's norms add up a number for each token in fp32


def problems_of(
    accelerator: str,
    data: int,
    ways: int,
    dtype: str,
    mode: str,
    family: str = FIRST,
    sites: tuple[str, ...] = ("resid_post", "attn_out"),
    sizes: Mapping[str, int] = SIZES,
    features: int = 0,
) -> list[str]:
    name = f"{family} {accelerator} {data}x{ways} {dtype} {mode} {len(sites)} sites, {features} features"
    mesh = Mesh(np.array(devices_of(accelerator)).reshape(data, ways), ("data", "model"))
    config = parse_config(family_config(family, **sizes), "a small model")
    capture = Capture(config, (0, 1, 3), sites, mode, dtype)
    is_pool = mode in ("mean", "max")  # which numbers of things exclude
    present = [site for site in sites if capture.layers_of(site) and not (is_pool and TABLE[site].dtype == "int32")]
    encoder = Encoder(features, "jumprelu", vectors=("b", "theta"))
    reductions = (Reduction("scope", "resid_post", (0, 3), config.d_model, 64, "bf16", encoder),) if features else ()
    capture = replace(capture, sites=tuple(present), reductions=reductions)
    width = ROW_TOKENS if mode == "all" else ROW_TOKENS // 8
    params, tuning = (
        parameter_shapes(config, 4, "bf16", capture.end) | {"reductions": reduction_shapes(reductions, "bf16")},
        tuning_of(mesh.devices.flat[0], "bf16", config),
    )
    shape = StepShape(1, ROW_TOKENS, width)
    limit = device_of(accelerator).hbm_bytes
    text = compile_rows(capture, Layout(mesh), params, shape, tuning, limit, name).run.as_text()
    cost, logits_bytes = cost_of(text), 4 * min(LOGIT_TOKENS, ROW_TOKENS if is_pool else width) * config.vocab_size
    problems = [
        f"{name}: {each.kind} moves fp32"
        for each in cost.collectives
        if "f32" in each.dtypes and each.size_bytes > _LARGE_BYTES and each.size_bytes != logits_bytes
    ]
    problems += [f"{name}: {buffer} holds all scores" for buffer in square_buffers(text, ROW_TOKENS)]
    problems += [f"{name}: {buffer} is a copy of experts" for buffer in expert_buffers(text, config, ways)]
    problems += [f"{name}: the estimate has no time for {each}" for each in uncounted(text)]
    if not cost.kernels:
        problems.append(f"{name}: the attention kernel is missing")
    if bool(cost.collectives) != (ways > 1):
        problems.append(f"{name}: {len(cost.collectives)} collectives")
    print(f"{name}: {cost.milliseconds(device_of(accelerator)):.3f} ms", flush=True)
    return problems


def main() -> int:
    found = problems_of("v5litepod-8", 4, 2, "int8", "mean")
    if "long" in sys.argv:  # other tests compile the program of one chip, without its problems
        found += problems_of("v5litepod-1", 1, 1, "bf16", "all")
        for family in sorted(FAMILY_CONFIGS.keys() - {FIRST}):
            found += problems_of("v5litepod-8", 4, 2, "bf16", "all", family)
        found += problems_of("v5litepod-8", 4, 2, "bf16", "mean", "gpt_oss", sizes=MANY_EXPERTS)
        found += problems_of("v5litepod-8", 4, 2, "bf16", "rows", features=8192)
        for family in ("gemma2", "qwen3_moe"):
            found += problems_of("v5litepod-8", 4, 2, "bf16", "rows", family, SITES)
            found += problems_of("v6e-8", 4, 2, "int8", "mean", family, SITES)
    for problem in found:
        print(problem)
    return 1 if found else 0


status = main()
sys.stdout.flush()
os._exit(status)  # libtpu's own exit takes seconds
