"""Compares the decoder with transformers: both run random models of every family and of random shapes.

    PYTHON test/reference/compare.py [--seed N] [--rounds N] [--only FAMILY,…] [--fp32]

Prints for each site the largest relative L2 error over all layers in fp32, and in bf16 beside the distance of
transformers' own bf16 from its fp32. Then both continue prompts greedily in fp32. Exits with 1 for an fp32 error above
1e-5, and for a token that `generate` of transformers does not choose.
"""

import argparse
import glob
import itertools
import os
import random
import secrets
import sys
import tempfile
from dataclasses import replace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "worker-startup"), HERE]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import torch
import transformers
from jax.sharding import Mesh
from random_configs import VARIANTS, shape
from transformers_model import make_folder

from gleaner_worker.architecture.config import parse_config
from gleaner_worker.architecture.sites import SITES, TABLE, Capture
from gleaner_worker.failures import Failure
from gleaner_worker.model.files.generation_rules import read_generation_rules
from gleaner_worker.model.files.weight_files import DiskFile
from gleaner_worker.model.program.decoder import run_blocks
from gleaner_worker.model.program.generation import Decoding
from gleaner_worker.model.program.rows import Rows
from gleaner_worker.model.program.tuning import CPU
from gleaner_worker.model.weights.mesh import Layout
from gleaner_worker.model.weights.place import place
from gleaner_worker.model.weights.weights import open_weights
from gleaner_worker.reference import transformers_model as reference

LIMIT = 1e-5
PROMPTS, NEW_TOKENS = (1, 9, 40), 20
_NEAR = 1e-4  # between the logits of tokens that may change their places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", help="families whose names begin so, with commas between them")
    parser.add_argument("--fp32", action="store_true", help="leave bf16 out, which takes most of the time")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    versions = {module.__name__: module.__version__ for module in (torch, transformers, jax)}
    print(", ".join(f"{name} {version}" for name, version in versions.items()), f"--seed {args.seed}", sep="; ")
    print(f"{'':18}  {'fp32, limit 1e-5':<{14 * len(SITES) - 1}}  bf16, worst site")
    print(f"{'family':18}  " + " ".join(f"{site:>13}" for site in SITES) + "  here / transformers  shape")
    worst = 0.0
    for turn in range(args.rounds):
        for name in VARIANTS:
            if args.only and not name.startswith(tuple(args.only.split(","))):
                continue
            worst = max(worst, compare(name, random.Random(f"{args.seed} {turn} {name}"), args.fp32))
    print(f"largest error in fp32: {worst:.1e}; the limit is {LIMIT:.0e}")
    sys.exit(0 if worst <= LIMIT else 1)


def compare(name: str, rng: random.Random, only_fp32: bool = False) -> float:
    raw, special = VARIANTS[name](rng, shape(rng))
    text = raw.get("text_config", raw)
    length = rng.randint(4 * 32 + 1, 520)
    token_ids = np.random.default_rng(rng.randrange(2**32)).integers(0, text["vocab_size"] - 1, length).astype(np.int32)
    with tempfile.TemporaryDirectory() as folder:
        # Both compute in bf16 and in fp32 with the same numbers, because the files hold bf16.
        make_folder(folder, raw, rng.randrange(2**32), dtype=torch.bfloat16, **special)
        config = parse_config(raw, name)
        names = all_sites(config).names
        model = reference.load(folder)
        wanted = reference.run(model, token_ids, names)
        errors = distances(ours(folder, config, "fp32", token_ids), wanted)
        wrong = wrong_answer(folder, config, model, token_ids, rng)
        if not only_fp32:
            rounded = max(distances(ours(folder, config, "bf16", token_ids), wanted).values())
            in_bf16 = reference.run(reference.load(folder, dtype=torch.bfloat16), token_ids, names)
            theirs = max(distances(in_bf16, wanted).values())
    shown = f"{config.num_layers}x{config.d_model}, {config.num_heads}/{config.num_kv_heads} heads of {config.head_dim}"
    columns = " ".join(f"{errors[site]:13.1e}" if site in errors else f"{'none':>13}" for site in SITES)
    bf16 = "not computed     " if only_fp32 else f"{rounded:.1e} / {theirs:.1e}"
    print(f"{name:18}  {columns}  {bf16}    {shown}, {length} tokens", flush=True)
    if wrong or max(errors.values()) > LIMIT:
        print(f"  {wrong or ''} {raw}")
    return max(float("inf") if wrong or np.isnan(error) else error for error in errors.values())


def wrong_answer(folder, config, model, token_ids, rng):
    """The first difference of our generated tokens from those of transformers, in words; None without any."""
    prompts, penalty = [token_ids[:length] for length in PROMPTS], rng.choice([1.0, 1.3])
    try:
        rules = read_generation_rules(folder, folder, config, {}, NEW_TOKENS, max(PROMPTS) + NEW_TOKENS)
    except Failure:  # a longrope of fewer tokens is refused by name
        return None

    def continued(prompt, end=None):
        ids = torch.as_tensor(prompt.astype(np.int64))[None]
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            repetition_penalty=penalty,
            eos_token_id=end,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        return found.sequences[0, len(prompt) :].tolist(), [scores[0] for scores in found.scores]

    # A token of one answer ends all answers.
    end = rng.choice(continued(prompts[0])[0])
    rules = replace(rules, end_ids=(end,), penalty=penalty)
    layout, params = placed(folder, config, "fp32", all_sites(config).end)
    found = dict(Decoding(config, layout, params, CPU, rules, None, folder).run(params, prompts, lambda start: start()))
    for number, prompt in enumerate(prompts):
        wanted, scores = continued(prompt, end)
        pairs = enumerate(itertools.zip_longest(found[number].tolist(), wanted))
        at, (got, right) = next(((at, pair) for at, pair in pairs if pair[0] != pair[1]), (0, (None, None)))
        if got != right and (None in (got, right) or abs(scores[at][got] - scores[at][right]) > _NEAR):
            return f"token {at} after {len(prompt)} tokens is {got}, and {right} of transformers;"
    return None


def placed(folder, config, dtype, end):
    layout = Layout(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model")))
    files = [DiskFile(path) for path in sorted(glob.glob(os.path.join(folder, "*.safetensors")))]
    return layout, place(open_weights(files, config, config.num_layers, dtype, folder, end), layout, as_bits=False)


def ours(folder, config, dtype, token_ids, capture=None):
    capture = capture or all_sites(config)
    _, params = placed(folder, config, dtype, capture.end)
    with jax.default_matmul_precision("highest" if dtype == "fp32" else "default"):
        # A row of two samples: the second one must not see the first.
        first, length = token_ids[: len(token_ids) // 3], len(token_ids)
        rows = Rows(
            np.concatenate([first, token_ids])[None],
            np.repeat([1, 2], [len(first), length]).astype(np.int32)[None],
            np.concatenate([np.arange(len(first)), np.arange(length)]).astype(np.int32)[None],
        )
        layers: list[tuple[int, ...]] = []

        def run(params, rows):
            pieces = run_blocks(params, rows, capture, lambda found, *_: found, CPU)
            layers.extend(each for each, _ in pieces)
            return [found for _, found in pieces]

        found = jax.device_get(jax.jit(run)(params, rows))  # indexing on the device compiles a program each
    by_name = {
        (site, layer): values[place, 0, len(first) :]
        for numbers, sites in zip(layers, found, strict=True)
        for site, values in sites.items()
        for place, layer in enumerate(numbers)
    }
    return {name: by_name[name].astype(np.float32) for name in capture.names}


def relative_error(site, got, wanted):
    """Of numbers of things: 0, unless more than a few differ, as near ties do."""
    if TABLE[site].dtype == "int32":
        return 0.0 if (got != wanted).mean() < 0.01 else float("inf")
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def all_sites(config):
    """Every site of every layer that the model has."""
    layers = tuple(range(config.num_layers))
    capture = Capture(config, layers, SITES, "all", "fp32")
    return replace(capture, sites=tuple(site for site in SITES if capture.layers_of(site)))


def distances(got, wanted):
    """{site: the largest relative L2 distance of a layer}"""
    found = {}
    for (site, layer), values in wanted.items():
        error = relative_error(site, got[site, layer], values)
        found[site] = max(found.get(site, 0.0), error)
    return found


if __name__ == "__main__":
    main()
