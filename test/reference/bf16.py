"""Measures bf16 against fp32 on the golden models of test/worker: ours, and that of transformers with eager attention.

    node test/reference/run.ts --bf16

Prints the relative L2 error of each model to fp32 of transformers, as the geometric mean over all sites and layers,
and their ratio: below 1, ours is nearer.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "worker", "support")]

import numpy as np
import torch
import transformers
from compare import all_sites, ours, relative_error

import golden_models as golden
from gleaner_worker.architecture.sites import TABLE
from gleaner_worker.reference import transformers_model as reference

_TOKENS = 400


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}\n| model | here | transformers | ratio |\n|---|---|---|---|")
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for name in golden.NAMES:
        here, theirs = errors(name)
        ratios[bool(golden.config(name).experts)].append(here / theirs)
        print(f"| {name} | {here:.1e} | {theirs:.1e} | {here / theirs:.2f} |", flush=True)
    for is_mixture, each in ratios.items():
        print(f"{'mixtures' if is_mixture else 'dense models'}: {mean(each):.2f}, {min(each):.2f} to {max(each):.2f}")


def errors(name: str) -> tuple[float, float]:
    folder, config = golden.folder(name), golden.config(name)
    length = min(_TOKENS, config.max_positions)
    ids = np.random.default_rng(0).integers(0, config.vocab_size - 1, length).astype(np.int32)
    names = [each for each in all_sites(config).names if TABLE[each[0]].dtype is None and each != ("resid_pre", 0)]
    names.remove(("embeddings", 0))
    wanted = reference.run(reference.load(folder), ids, names)
    both = ours(folder, config, "bf16", ids), reference.run(reference.load(folder, dtype=torch.bfloat16), ids, names)
    here, theirs = (mean([relative_error(at[0], found[at], wanted[at]) for at in names]) for found in both)
    return here, theirs


def mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


if __name__ == "__main__":
    main()
